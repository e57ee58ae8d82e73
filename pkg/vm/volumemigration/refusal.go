package volumemigration

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// Reasons of Condition while it is True.
const (
	// ReasonWaiting: something is in the way, which the message names.
	ReasonWaiting = "VolumesChangeWaiting"
	// ReasonCopying: the disks are copied, or are about to be.
	ReasonCopying = "VolumesChangeCopying"
)

// Waiting returns the condition of a VMI whose spec names claims to which nothing can be copied yet; nil when that is
// not so, or not known. Such a guest does not migrate: not with its disks, and not without them.
func Waiting(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstanceCondition {
	c := conditions.With(vmi.Status.Conditions, Condition, corev1.ConditionTrue)
	if c == nil || c.Reason != ReasonWaiting || len(Moves(vmi)) == 0 || Described(vmi) {
		return nil
	}
	return c
}

// Unsaid reports a condition that says that disks are being copied, or wait for that, where there is nothing to copy
// any more: the volumes were reverted before it had begun.
func Unsaid(vmi *v1.VirtualMachineInstance) bool {
	return life.Running(vmi) && !Pending(vmi) && conditions.True(vmi.Status.Conditions, Condition)
}

// Refused is why a guest is not migrated, as in a condition.
type Refused struct{ Reason, Message string }

// Refusals returns all that is known now of why a VMI's guest must not be moved to another node, whoever asks: disks
// that wait for their claims, what the guest's node says, and the claims that the guest uses. The claims are looked at
// themselves since the node may not have seen yet that the volumes were reverted.
func Refusals(vmi *v1.VirtualMachineInstance) []Refused {
	var out []Refused
	if c := Waiting(vmi); c != nil {
		out = append(out, Refused{c.Reason, c.Message})
	}
	c := conditions.With(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse)
	if c != nil {
		return append(out, Refused{c.Reason, c.Message})
	}
	var tied []migrations.Obstacle
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if s := statusOf(vmi.Status.VolumeStatus, v.Name); s != nil && s.PersistentVolumeClaimInfo != nil &&
			s.PersistentVolumeClaimInfo.ClaimName == claims.Name(v) {
			tied = append(tied, Tied(vmi, v)...)
		}
	}
	if len(tied) > 0 {
		out = append(out, Refused{
			v1.VirtualMachineInstanceReasonDisksNotMigratable, migrations.EncodeObstacles(tied),
		})
	}
	return out
}

// Refusal returns the first of Refusals in KubeVirt's words, "" when there is none.
func Refusal(vmi *v1.VirtualMachineInstance) string {
	if all := Refusals(vmi); len(all) > 0 {
		return migrations.Cannot(all[0].Reason, all[0].Message)
	}
	return ""
}

// Tied returns the obstacle that a volume of a VMI is for its migration: one claim, which is not being exchanged, and
// which two nodes cannot use at once.
func Tied(vmi *v1.VirtualMachineInstance, v *v1.Volume) []migrations.Obstacle {
	if !tied(vmi, v) {
		return nil
	}
	text := claims.Name(v) + " cannot be used on two nodes at once; its access mode would have to be ReadWriteMany"
	if allCopied(vmi) {
		text += ", or `virtctl migrate " + vmi.Name + " --with-disks` copies the disk along"
	}
	return []migrations.Obstacle{{Kind: migrations.Claim, Object: v.Name, Text: text}}
}

func tied(vmi *v1.VirtualMachineInstance, v *v1.Volume) bool {
	if claims.Name(v) == "" {
		return false
	}
	if _, copied := moveOf(Moves(vmi), v.Name); copied {
		return false
	}
	var info *v1.PersistentVolumeClaimInfo
	if s := statusOf(vmi.Status.VolumeStatus, v.Name); s != nil {
		info = s.PersistentVolumeClaimInfo
	}
	return !OnBothNodes(info, claims.Of(v).ReadOnly)
}

// allCopied reports whether a migration with disks copies each volume that keeps the guest on its node.
func allCopied(vmi *v1.VirtualMachineInstance) bool {
	return ofVM(vmi) && immovable(vmi) == nil && len(Stuck(vmi)) == 0
}
