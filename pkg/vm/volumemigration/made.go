package volumemigration

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// A migration that fails has virt-controller delete the claims that it has made. A label on a claim does not say so:
// who may label claims need not be allowed to delete them. The migration's status does, which only virtkit may write:
//
//	status: claim data-m1 ─► the claim is made ─► status: claim data-m1, UID 1234
//
// A claim is deleted only if its UID is there. Where virt-controller is killed after it has made the claim and before
// it has written the UID, the claim of that name is its own if it has the migration's labels and is not older than the
// migration (Made.Unrecorded). Only who makes a claim of that very name meanwhile can forge that, for that claim.

// MadeCondition is on a migration that makes claims; its message is JSON of a list of Made.
const MadeCondition v1.VirtualMachineInstanceMigrationConditionType = conditions.ClaimsMade

// reasonMade is the reason of MadeCondition.
const reasonMade = "WithDisks"

// Made is a claim that a migration has made for a disk, or is about to make.
type Made struct {
	// Volume is the volume's name in the spec, and Claim the claim's.
	Volume string `json:"volume"`
	Claim  string `json:"claim"`
	// UID is the claim's, once the migration has made it.
	UID types.UID `json:"uid,omitempty"`
}

// MadeBy returns the claims that a migration has made, or is about to make, by its status.
func MadeBy(status *v1.VirtualMachineInstanceMigrationStatus) []Made {
	c := conditions.Find(status.Conditions, MadeCondition)
	if c == nil {
		return nil
	}
	return listed[Made](c.Message)
}

// listOf returns the JSON of a list of claims, and listed reads it: nothing of what virtkit has not written.
func listOf[T any](list []T) (string, error) {
	text, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encode the claims: %w", err)
	}
	return string(text), nil
}

func listed[T any](text string) []T {
	var out []T
	if json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

// SetMade has a migration's status say which claims the migration has made, or is about to make.
func SetMade(status *v1.VirtualMachineInstanceMigrationStatus, made []Made, now time.Time) error {
	text, err := listOf(made)
	if err != nil {
		return err
	}
	conditions.Set(&status.Conditions, v1.VirtualMachineInstanceMigrationCondition{
		Type: MadeCondition, Status: corev1.ConditionTrue, Reason: reasonMade, Message: text,
	}, now)
	return nil
}

// NoteMade has a migration's status say the UID of a claim that was made just now.
func NoteMade(
	status *v1.VirtualMachineInstanceMigrationStatus, claim *corev1.PersistentVolumeClaim, now time.Time,
) error {
	all := MadeBy(status)
	for i := range all {
		if all[i].Claim == claim.Name {
			all[i].UID = claim.UID
		}
	}
	return SetMade(status, all, now)
}

// Is reports whether a claim, which may be nil, is known to be the one that the migration has made.
func (m *Made) Is(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && m.UID != "" && claim.Name == m.Claim && claim.UID == m.UID
}

// Unrecorded reports whether a claim, which may be nil, is the one that a migration has made without having been able
// to write its UID.
func (m *Made) Unrecorded(by *v1.VirtualMachineInstanceMigration, claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && m.UID == "" && claim.Name == m.Claim && by.UID != "" &&
		claim.Labels[CopiedByLabel] == string(by.UID) && claim.Labels[CopiedVolumeLabel] == m.Volume &&
		!claim.CreationTimestamp.Before(&by.CreationTimestamp)
}

// madeFor returns the index of a volume in a list; -1 when it has none.
func madeFor(list []Made, volume string) int {
	return slices.IndexFunc(list, func(m Made) bool { return m.Volume == volume })
}

// CopyPlan says which claims a migration copies disks to.
type CopyPlan struct {
	// Made is what the migration's status is to say before any of them is made.
	Made []Made
	// Missing are those that are not there, to be made as the claims are that the guest has.
	Missing []*corev1.PersistentVolumeClaim
}

// To returns the name of the claim to which a volume is copied.
func (p CopyPlan) To(volume string) string { return p.Made[madeFor(p.Made, volume)].Claim }

// Copies plans the claims to which a migration copies volumes of a VMI. all are the claims of the namespace by name.
func Copies(
	by *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance, volumes []string,
	all map[string]*corev1.PersistentVolumeClaim,
) (CopyPlan, error) {
	plan := CopyPlan{Made: slices.Clone(MadeBy(&by.Status))}
	taken := func(name string) bool {
		return all[name] != nil || slices.ContainsFunc(plan.Made, func(m Made) bool { return m.Claim == name })
	}
	for _, volume := range volumes {
		at := madeFor(plan.Made, volume)
		if at >= 0 {
			m, there := &plan.Made[at], all[plan.Made[at].Claim]
			switch {
			case m.Is(there) && there.DeletionTimestamp == nil:
				continue
			case m.Unrecorded(by, there) && there.DeletionTimestamp == nil:
				m.UID = there.UID
				continue
			case there != nil: // another has the name, or it is being deleted
				plan.Made = slices.Delete(plan.Made, at, at+1)
				at = -1
			}
		}
		from := all[InUse(&vmi.Status, volume)]
		if from == nil {
			return CopyPlan{}, fmt.Errorf("%sPersistentVolumeClaim %s does not exist", hotplug.Naming(volume),
				InUse(&vmi.Status, volume))
		}
		var size int64
		if s := statusOf(vmi.Status.VolumeStatus, volume); s != nil {
			size = s.Size
		}
		claim := NewClaim(from, size, Target{}, taken)
		claim.Labels = map[string]string{CopiedByLabel: string(by.UID), CopiedVolumeLabel: volume}
		if at >= 0 {
			claim.Name = plan.Made[at].Claim
		} else {
			plan.Made = append(plan.Made, Made{Volume: volume, Claim: claim.Name})
		}
		plan.Missing = append(plan.Missing, claim)
	}
	return plan, nil
}
