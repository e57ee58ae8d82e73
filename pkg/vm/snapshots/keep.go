package snapshots

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// What a restore keeps of the VM that it replaces, so that it can be taken back; ours, and only where it is asked for.
const (
	// KeepAnnotation on a restore, "true", keeps the claims and the spec that the VM had.
	KeepAnnotation = "restore.virtkit.io/keep-replaced"
	// UndoAnnotation on a restore names the restore that it takes back. What it replaces is kept, too.
	UndoAnnotation = "restore.virtkit.io/undo"
	// FormerAnnotation on a VM names the ControllerRevision that has what its last restore replaced.
	FormerAnnotation = "restore.virtkit.io/former"
	// KeptLabel is on claims that a restore has kept and its VM does not use: the restore's name.
	KeptLabel = "restore.virtkit.io/replaced-by"
	// LastAnnotation on a VM names the restore that wrote it last, and on a claim the one that made it; KubeVirt's.
	LastAnnotation = "restore.kubevirt.io/lastRestoreUID"
)

// Mark returns the value of LastAnnotation for a restore.
func Mark(r *v1beta1.VirtualMachineRestore) string { return r.Name + "-" + string(r.UID) }

// Undoes returns the name of the restore that a restore takes back, empty for all others.
func Undoes(r metav1.Object) string { return r.GetAnnotations()[UndoAnnotation] }

// Keeps reports whether a restore keeps what it replaces.
func Keeps(r metav1.Object) bool {
	return r.GetAnnotations()[KeepAnnotation] == "true" || Undoes(r) != ""
}

// Former is the state of a VM before it was restored.
type Former struct {
	// UID is the VM's.
	UID  types.UID             `json:"uid"`
	Spec v1.VirtualMachineSpec `json:"spec"`
	// StateVolume and State are the volume, as a snapshot calls it, and the claim of its TPM and EFI variables.
	StateVolume string `json:"stateVolume,omitempty"`
	State       string `json:"state,omitempty"`
}

// FormerName returns the name of the ControllerRevision for what a restore replaces. The generation distinguishes a VM
// that was changed between two attempts.
func FormerName(r *v1beta1.VirtualMachineRestore, generation int64) string {
	return fmt.Sprintf("restore-%s-%d", r.UID, generation)
}

// ReadFormer reads the data of a ControllerRevision.
func ReadFormer(data []byte) (*Former, error) {
	former := &Former{}
	if err := json.Unmarshal(data, former); err != nil {
		return nil, fmt.Errorf("read what the VM was: %w", err)
	}
	if former.UID == "" || former.Spec.Template == nil {
		return nil, fmt.Errorf("read what the VM was: it has no VM")
	}
	return former, nil
}

// Restores returns the volumes of a former VM by their claims, as the status of a restore lists them.
func (f *Former) Restores() []v1beta1.VolumeRestore {
	var out []v1beta1.VolumeRestore
	for i := range f.Spec.Template.Spec.Volumes {
		volume := &f.Spec.Template.Spec.Volumes[i]
		entry := v1beta1.VolumeRestore{VolumeName: volume.Name, PersistentVolumeClaimName: Claim(volume)}
		if entry.PersistentVolumeClaimName == "" || volume.MemoryDump != nil {
			continue
		}
		if volume.DataVolume != nil {
			entry.DataVolumeName = &volume.DataVolume.Name
		}
		out = append(out, entry)
	}
	if f.State != "" {
		out = append(out, v1beta1.VolumeRestore{VolumeName: f.StateVolume, PersistentVolumeClaimName: f.State})
	}
	return out
}

// ClaimNames returns the claims of a VM's volumes that a snapshot can have, in the order of the volumes.
func ClaimNames(spec *v1.VirtualMachineSpec) []string {
	if spec.Template == nil {
		return nil
	}
	var out []string
	for i := range spec.Template.Spec.Volumes {
		if name := Claim(&spec.Template.Spec.Volumes[i]); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Lost returns the claims of a former VM that are not there any more.
func Lost(former *Former, there map[string]*corev1.PersistentVolumeClaim) []string {
	var out []string
	for _, entry := range former.Restores() {
		claim := there[entry.PersistentVolumeClaimName]
		if claim == nil || claim.DeletionTimestamp != nil {
			out = append(out, entry.PersistentVolumeClaimName)
		}
	}
	return out
}

// Taken returns the claims that a former VM would get back and that another VM or VMI has now, each with who that is.
// Claims that the VM has still are not among them, nor what the former VM shared: disks that it only read or marked as
// shareable, and file systems.
func Taken(former *Former, vm *v1.VirtualMachine, users claims.Users) []string {
	has := ClaimNames(&vm.Spec)
	var out []string
	for _, entry := range former.Restores() {
		claim := entry.PersistentVolumeClaimName
		if slices.Contains(has, claim) || shares(&former.Spec.Template.Spec, entry.VolumeName) {
			continue
		}
		if by := KeptBy(claim, vm.Name, users); by != "" {
			out = append(out, fmt.Sprintf("PVC %s is used by %s", claim, by))
		}
	}
	return out
}

// shares reports a volume that several guests may have at a time.
func shares(guest *v1.VirtualMachineInstanceSpec, volume string) bool {
	for i := range guest.Volumes {
		claim := guest.Volumes[i].PersistentVolumeClaim
		if guest.Volumes[i].Name == volume && claim != nil && claim.ReadOnly {
			return true
		}
	}
	for i := range guest.Domain.Devices.Disks {
		disk := &guest.Domain.Devices.Disks[i]
		if disk.Name != volume {
			continue
		}
		return disk.Shareable != nil && *disk.Shareable || disk.CDRom != nil ||
			disk.Disk != nil && disk.Disk.ReadOnly || disk.LUN != nil && disk.LUN.ReadOnly
	}
	return slices.ContainsFunc(guest.Domain.Devices.Filesystems, func(o v1.Filesystem) bool { return o.Name == volume })
}
