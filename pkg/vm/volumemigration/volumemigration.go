// Package volumemigration says which claims of a running guest are being exchanged for others, to which its disks are
// copied while it runs (spec.updateVolumesStrategy: Migration of a VirtualMachine). It is pure: specs and status in,
// values out. All components ask it, so that they agree on which claim has the guest's data:
//
//	the VM names another claim ─► virt-controller: the VMI's spec names it (Follow)
//	                                └─► virt-controller: status.migratedVolumes, a migration (Describe)
//	                                      └─► virt-handlers, launchers: a target pod with the new claims (AtTarget),
//	                                          the disks copied with the memory (Leaving)
//	                                            └─► the target's virt-handler: status names the new claims (Land)
//
// A hotplugged volume is in the spec of no launcher's pod but in that of an attachment pod (pkg/vm/hotplug): the one
// at the target holds the new claim, and that of the guest's node the old one (hotplug.AtSource).
//
// status.volumeStatus[].persistentVolumeClaimInfo.claimName is the claim that the guest uses; only Land changes it, in
// the same write as status.nodeName. What the spec says beyond it is under way (Moves). The VM goes back to the old
// claims in the same way: the spec names them again, and nothing is under way.
package volumemigration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// Condition is the condition of a VMI whose disks are being copied to other claims.
const Condition = v1.VirtualMachineInstanceVolumesChange

// Move is a volume whose disk is to be copied from one claim to another.
type Move struct{ Volume, From, To string }

// Moves returns the volumes of a VMI whose spec names another claim than the guest uses, in the spec's order.
func Moves(vmi *v1.VirtualMachineInstance) []Move {
	var out []Move
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if !claims.Storage(v) || hotplug.Is(v) && !hotplug.Copied(vmi, v) {
			continue
		}
		if from, to := InUse(&vmi.Status, v.Name), claims.Name(v); from != "" && from != to {
			out = append(out, Move{v.Name, from, to})
		}
	}
	return out
}

// Move returns the move of a volume; ok is false when it stays on its claim.
func moveOf(moves []Move, volume string) (move Move, ok bool) {
	at := slices.IndexFunc(moves, func(m Move) bool { return m.Volume == volume })
	if at < 0 {
		return Move{}, false
	}
	return moves[at], true
}

// InUse returns the name of the claim that the guest uses for a volume; "" when it is not known.
func InUse(status *v1.VirtualMachineInstanceStatus, volume string) string {
	if s := statusOf(status.VolumeStatus, volume); s != nil && s.PersistentVolumeClaimInfo != nil {
		return s.PersistentVolumeClaimInfo.ClaimName
	}
	return ""
}

func statusOf(list []v1.VolumeStatus, volume string) *v1.VolumeStatus {
	for i := range list {
		if list[i].Name == volume {
			return &list[i]
		}
	}
	return nil
}

// Pending reports whether there is anything to do for a VMI's volumes, or to be undone.
func Pending(vmi *v1.VirtualMachineInstance) bool {
	return len(vmi.Status.MigratedVolumes) > 0 || len(Moves(vmi)) > 0
}

// Described reports whether status.migratedVolumes says exactly what is under way.
func Described(vmi *v1.VirtualMachineInstance) bool {
	moves := Moves(vmi)
	if len(moves) != len(vmi.Status.MigratedVolumes) {
		return false
	}
	for _, m := range vmi.Status.MigratedVolumes {
		move, ok := moveOf(moves, m.VolumeName)
		if !ok || m.SourcePVCInfo == nil || m.DestinationPVCInfo == nil ||
			m.SourcePVCInfo.ClaimName != move.From || m.DestinationPVCInfo.ClaimName != move.To {
			return false
		}
	}
	return true
}

// Disk is a disk that is copied when the guest moves.
type Disk struct {
	Volume string
	// Plugged says that the volume is hotplugged.
	Plugged bool
	// Block says that the target's claim is a device.
	Block bool
}

// Leaving returns the disks that a guest's node copies to other claims when it sends the guest to another node. It
// fails where the spec was changed since the target's pod was made, and where the guest must not move: nothing may be
// sent then.
func Leaving(vmi *v1.VirtualMachineInstance) ([]Disk, error) {
	if !Described(vmi) {
		return nil, fmt.Errorf("the volumes of the VirtualMachineInstance were changed meanwhile")
	}
	if why := Refusal(vmi); why != "" {
		return nil, errors.New(why)
	}
	var out []Disk
	for _, m := range vmi.Status.MigratedVolumes {
		v := hotplug.Volume(&vmi.Spec, m.VolumeName) // there, since it is described
		out = append(out, Disk{m.VolumeName, hotplug.Is(v), claims.IsBlock(m.DestinationPVCInfo.VolumeMode)})
	}
	return out, nil
}

// AtTarget returns a VMI as the node is to see it to which the guest moves: with what is known of the new claims.
func AtTarget(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	if len(vmi.Status.MigratedVolumes) == 0 {
		return vmi
	}
	out := vmi.DeepCopy()
	use(out.Status.VolumeStatus, vmi.Status.MigratedVolumes)
	return out
}

// use sets the claims of volumes that have moved.
func use(list []v1.VolumeStatus, moved []v1.StorageMigratedVolumeInfo) {
	for _, m := range moved {
		if s := statusOf(list, m.VolumeName); s != nil {
			s.PersistentVolumeClaimInfo = m.DestinationPVCInfo.DeepCopy()
		}
	}
}

// Land notes that the guest has come to the new claims.
func Land(status *v1.VirtualMachineInstanceStatus) {
	use(status.VolumeStatus, status.MigratedVolumes)
	status.MigratedVolumes = nil
	conditions.Remove(&status.Conditions, Condition)
}

// CopySize returns the size (bytes) that the image of a volume must have for a disk that is to be copied to it; 0 when
// none is.
func CopySize(vmi *v1.VirtualMachineInstance, volume string) int64 {
	for _, m := range vmi.Status.MigratedVolumes {
		if m.VolumeName != volume || m.DestinationPVCInfo == nil {
			continue
		}
		if s := statusOf(vmi.Status.VolumeStatus, volume); s != nil &&
			InUse(&vmi.Status, volume) == m.DestinationPVCInfo.ClaimName {
			return s.Size
		}
	}
	return 0
}

// Info returns what a VMI's status says of a claim.
func Info(claim *corev1.PersistentVolumeClaim) *v1.PersistentVolumeClaimInfo {
	mode := corev1.PersistentVolumeFilesystem
	if claim.Spec.VolumeMode != nil {
		mode = *claim.Spec.VolumeMode
	}
	return &v1.PersistentVolumeClaimInfo{
		ClaimName: claim.Name, AccessModes: claim.Spec.AccessModes, VolumeMode: &mode,
		Capacity: claim.Status.Capacity, Requests: claim.Spec.Resources.Requests,
	}
}

// Describe returns what status.migratedVolumes is to say; found are the claims that exist, by name. why says what a
// move waits for, when it is not empty.
func Describe(
	vmi *v1.VirtualMachineInstance, found map[string]*corev1.PersistentVolumeClaim,
) (out []v1.StorageMigratedVolumeInfo, why string) {
	for _, m := range Moves(vmi) {
		s, to := statusOf(vmi.Status.VolumeStatus, m.Volume), found[m.To]
		switch {
		case to == nil:
			return nil, fmt.Sprintf("%sPersistentVolumeClaim %s does not exist", hotplug.Naming(m.Volume), m.To)
		case to.DeletionTimestamp != nil:
			return nil, fmt.Sprintf("%sPersistentVolumeClaim %s is being deleted", hotplug.Naming(m.Volume), m.To)
		case s.Size <= 0:
			return nil, hotplug.Naming(m.Volume) + "the size of the guest's disk is not known yet"
		}
		if room := room(to); room < s.Size {
			return nil, fmt.Sprintf("%sPersistentVolumeClaim %s has %d bytes and the guest's disk %d; use a larger "+
				"claim", hotplug.Naming(m.Volume), m.To, room, s.Size)
		}
		out = append(out, v1.StorageMigratedVolumeInfo{
			VolumeName: m.Volume, SourcePVCInfo: s.PersistentVolumeClaimInfo.DeepCopy(), DestinationPVCInfo: Info(to),
		})
	}
	return out, ""
}

// room returns the capacity of a claim, bytes, or what it asks for as long as it is not bound.
func room(claim *corev1.PersistentVolumeClaim) int64 {
	if has, bound := claim.Status.Capacity[corev1.ResourceStorage]; bound {
		return has.Value()
	}
	asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return asked.Value()
}

// Outdated reports a launcher's pod that was made for other claims than a guest has, none of which it will come back to
// by itself. Kubernetes deletes no claim that a pod names, though it has completed.
func Outdated(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) bool {
	if Pending(vmi) {
		return false
	}
	made, known := pod.Annotations[names.AnnotationClaims]
	if !known { // no migration's
		first := vmi.Spec
		first.Volumes = slices.Clone(first.Volumes)
		had := originals(vmi)
		for i := range first.Volumes {
			if was, moved := had[first.Volumes[i].Name]; moved {
				first.Volumes[i] = was
			}
		}
		made = Fingerprint(&first)
	}
	return made != Fingerprint(&vmi.Spec)
}

// Fingerprint tells apart pods that were made for different claims of a VMI: those of the volumes that its pod has from
// its start.
func Fingerprint(spec *v1.VirtualMachineInstanceSpec) string {
	var all []string
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; claims.Name(v) != "" && !hotplug.Is(v) {
			all = append(all, v.Name+"="+claims.Name(v))
		}
	}
	return names.Hash(strings.Join(all, "\n"), 16)
}
