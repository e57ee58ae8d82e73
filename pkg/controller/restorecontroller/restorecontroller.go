// Package restorecontroller carries out VirtualMachineRestores: it brings a VirtualMachine, which may be gone or have
// another name, back to a VirtualMachineSnapshot.
//
//	VirtualMachineSnapshot ─► VirtualMachineSnapshotContent ─► VolumeSnapshots ─► new claims ─► VirtualMachine
//
// A restore has two phases. In the first, new claims are made beside the VM's own, which nothing touches; the VM is
// held (status.restoreInProgress), so that it does not start. Once all of them are ready, the VM's spec is written
// once, with an annotation that names the restore: this is the commit. In the second phase everything that depends on
// the VM follows: owners, the label of the claim that has the VM's state, and the deletion of what the old VM alone
// had. So whatever fails, and whenever the controller ends, either the old VM or the new one is complete, and a restore
// that is deleted after its commit is finished first.
//
// What a restore replaces can be kept (keep.go), and then another restore takes it back in the same two phases.
//
// Restoring volumes in place is the exception that its policy asks for: a claim can have its name again only once the
// old one is deleted. No claim is deleted before every VolumeSnapshot is known to be ready, nor one that another VM, a
// VMI or a pod uses. What only the old VM had is not deleted either where another VM or a VMI uses it.
package restorecontroller

import (
	"strings"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// What KubeVirt's clients know of a restore.
const (
	// Finalizer keeps a restore until its VM is released.
	Finalizer = "snapshot.kubevirt.io/vmrestore-protection"
	// NameAnnotation is on claims and DataVolumes that a restore made: its name.
	NameAnnotation = "restore.kubevirt.io/name"
	// LastAnnotation is on claims that a restore made and on VMs that it wrote: its name and UID.
	LastAnnotation = snapshots.LastAnnotation
	// ownedAnnotation is on claims that a VM is to own that does not exist yet: the restore's name.
	ownedAnnotation = "restore.kubevirt.io/owned-by-vm"
	// SourceLabel and NamespaceLabel are on claims that a restore made: the VM of the snapshot.
	SourceLabel    = "restore.kubevirt.io/source-vm-name"
	NamespaceLabel = "restore.kubevirt.io/source-vm-namespace"
	// replacedLabel is on a claim whose state another has now, until it is deleted.
	replacedLabel = "restore.kubevirt.io/cleanup-backend-pvc"
	// populatedFor is on a claim that CDI is to give to a DataVolume of that name.
	populatedFor = "cdi.kubevirt.io/storage.populatedFor"
)

// Volume is a volume of the snapshot that is to be restored, with what exists for it.
type Volume struct {
	Backup v1beta1.VolumeBackup
	// Snapshot is the VolumeSnapshot, nil when it is not there.
	Snapshot *snapshotsv1.VolumeSnapshot
	// Claim is the claim of the restored name, nil when there is none.
	Claim *corev1.PersistentVolumeClaim
	// Late reports a claim that is bound only when a pod uses it.
	Late bool
	// DataVolume is the DataVolume of the claim's name, nil when there is none.
	DataVolume *cdiv1.DataVolume
}

// View holds what exists.
type View struct {
	Restore *v1beta1.VirtualMachineRestore
	// VM is the target, nil when it does not exist.
	VM *v1.VirtualMachine
	// VMI is the VMI of the target's name, nil when there is none.
	VMI      *v1.VirtualMachineInstance
	Snapshot *v1beta1.VirtualMachineSnapshot
	Content  *v1beta1.VirtualMachineSnapshotContent
	// SourceExists reports that the VM of the snapshot exists, be it the target or not.
	SourceExists bool
	// Served reports that the cluster has VolumeSnapshots, CDI that it has DataVolumes.
	Served, CDI bool
	// Volumes are the volumes of the content.
	Volumes []Volume
	// Users says who uses the namespace's claims; it is nil where asksForUsers says that it does not matter.
	Users claims.Users
	// Revisions are the ControllerRevisions that the snapshot's VM refers to, and their copies for the restored VM, by
	// name.
	Revisions map[string]*appsv1.ControllerRevision
	// Made are the claims in status.restores by name; Replaced are claims whose state another claim has now; States are
	// claims that have the target's state.
	Made             map[string]*corev1.PersistentVolumeClaim
	Replaced, States []*corev1.PersistentVolumeClaim
	// Undone is the restore that this one takes back, nil when it is not there.
	Undone *v1beta1.VirtualMachineRestore
	// Former is the restored VM as it was before, or is to be again; nil when nothing was kept. Kept are its claims and
	// the target's, by name.
	Former *snapshots.Former
	Kept   map[string]*corev1.PersistentVolumeClaim
	// DataVolumes are the DataVolumes in status.restores and status.deletedDataVolumes, by name.
	DataVolumes map[string]*cdiv1.DataVolume
	Now         time.Time
}

// Event is one about the restore.
type Event struct{ Type, Reason, Message string }

// Change is a claim, DataVolume or ControllerRevision as it was read, and as it is to be.
type Change[T any] struct{ Before, After T }

// Step holds what to write, in the order of its fields; the zero Step writes nothing.
type Step struct {
	// Status is the status to be written; nil leaves it.
	Status *v1beta1.VirtualMachineRestoreStatus
	// Stuck says that the restore goes no further for now, as its status says.
	Stuck  bool
	Events []Event
	// Prepare adds the finalizer, and the target as owner.
	Prepare bool
	// Rehearse is the target as it will be made. The API server is asked whether it would take it, and nothing of this
	// step is done, but the restore fails, when it would not.
	Rehearse *v1.VirtualMachine
	// Stop ends the target's guest, Hold keeps the target from starting.
	Stop runstrategy.Change
	Hold bool
	// Claims are changed before others are deleted or made.
	ChangeClaims      []Change[*corev1.PersistentVolumeClaim]
	ChangeDataVolumes []Change[*cdiv1.DataVolume]
	DeleteClaims      []*corev1.PersistentVolumeClaim
	CreateClaims      []*corev1.PersistentVolumeClaim
	CreateDataVolumes []*cdiv1.DataVolume
	CreateRevisions   []*appsv1.ControllerRevision
	// CreateVM or VM is the commit.
	CreateVM *v1.VirtualMachine
	VM       *v1.VirtualMachine
	// MadeEvents are about the VM that was created: a clone's restore is deleted, and its events are not found then.
	MadeEvents        []Event
	ChangeRevisions   []Change[*appsv1.ControllerRevision]
	DeleteDataVolumes []*cdiv1.DataVolume
	// Release lets the target start again, and Done is the status after that.
	Release         bool
	Done            *v1beta1.VirtualMachineRestoreStatus
	RemoveFinalizer bool
	frame.Requeue
}

// mark returns the value of LastAnnotation for a restore.
func mark(r *v1beta1.VirtualMachineRestore) string { return snapshots.Mark(r) }

// marked reports whether a restore made or wrote an object.
func marked(r *v1beta1.VirtualMachineRestore, object metav1.Object) bool {
	return object.GetAnnotations()[LastAnnotation] == mark(r)
}

// committed reports that the target is the restored one.
func (v *View) committed() bool { return v.VM != nil && marked(v.Restore, v.VM) }

// held reports that the restore keeps its target from starting.
func (v *View) held() bool {
	if v.VM == nil {
		return false
	}
	by, held := snapshots.RestoreOf(v.VM)
	return held && by == v.Restore.Name
}

func (v *View) inPlace() bool { return policy(v.Restore) == v1beta1.VolumeRestorePolicyInPlace }

// policy returns the restore's policy for volumes, which decides how the restored claims are named.
func policy(r *v1beta1.VirtualMachineRestore) v1beta1.VolumeRestorePolicy {
	if r.Spec.VolumeRestorePolicy == nil {
		return v1beta1.VolumeRestorePolicyRandomizeNames
	}
	return *r.Spec.VolumeRestorePolicy
}

// owns reports whether the target is to own its volumes.
func owns(r *v1beta1.VirtualMachineRestore) bool {
	return r.Spec.VolumeOwnershipPolicy == nil || *r.Spec.VolumeOwnershipPolicy != v1beta1.VolumeOwnershipPolicyNone
}

// isState reports the volume of a snapshot that is the state of a VM, its TPM and EFI variables.
func isState(volume string) bool { return strings.HasPrefix(volume, vmstate.Prefix+"-") }
