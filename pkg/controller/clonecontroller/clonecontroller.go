// Package clonecontroller carries out VirtualMachineClones: it makes a VirtualMachine that equals another VM, as
// that is now or was when it was snapshotted, with an identity of its own.
//
//	VirtualMachine ─► VirtualMachineSnapshot (temporary) ─► VirtualMachineRestore (temporary) ─► VirtualMachine
//
// When the source is in another namespace, a copy of the snapshot comes between the first two; see remote.go. A claim
// that has an image is copied from another namespace to a claim; see image.go.
//
// The snapshot makes the clone of a running guest consistent. The restore's patches give the clone its own
// identity: MAC addresses, firmware UUID and serial number, host name; the guest's cloud-init sees another instance,
// since the name by which the guest knows itself is not taken over. What clones.KeepAnnotation lists is kept. Both
// temporary objects belong to the clone, are named by its UID, and are deleted once the claims of the new VM are bound.
package clonecontroller

import (
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

const (
	kindMachine  = "VirtualMachine"
	kindSnapshot = clones.KindSnapshot
)

// Reasons of events; KubeVirt's.
const (
	reasonSnapshotCreated = "SnapshotCreated"
	reasonSnapshotReady   = "SnapshotReady"
	reasonRestoreCreated  = "RestoreCreated"
	reasonRestoreFailed   = "RestoreCreationFailed"
	reasonRestoreReady    = "RestoreReady"
	reasonTargetCreated   = "TargetVMCreated"
	reasonPVCBound        = "PVCBound"
	reasonSnapshotDeleted = "SnapshotDeleted"
	reasonNoSource        = "SourceDoesNotExist"
	// reasonTaken is ours: KubeVirt's clone waits for ever.
	reasonTaken = "TargetExists"
)

// again is the delay before the next look at what sends no event.
const again = 5 * time.Second

// View holds what exists.
type View struct {
	Clone *clonev1beta1.VirtualMachineClone
	// Source is the VM that is cloned, nil when it does not exist, or a snapshot is.
	Source *v1.VirtualMachine
	// Snapshot is the temporary snapshot, or the one that is the clone's source; Content is its content.
	Snapshot *v1beta1.VirtualMachineSnapshot
	Content  *v1beta1.VirtualMachineSnapshotContent
	Restore  *v1beta1.VirtualMachineRestore
	// Remote describes a clone whose source is in another namespace, and is nil for one in the same. Snapshot and
	// Content are copies then.
	Remote *Remote
	// Image describes a clone that copies an image, and is nil for any other. Remote has its VolumeSnapshots then.
	Image *Image
	// Target is the new VM.
	Target *v1.VirtualMachine
	// Other is the VM that has the name of the new VM before the clone has made it, nil when the name is free.
	Other *v1.VirtualMachine
	// Unbound are the names of the new VM's claims that have no volume.
	Unbound []string
	// Suffix ends the name of a new VM that the clone does not name.
	Suffix string
	Now    time.Time
}

// Event is one about the clone.
type Event struct{ Type, Reason, Message string }

// Step holds what to write, in the order of its fields; the zero Step writes nothing.
type Step struct {
	// AddFinalizer is done alone: its event brings the next step.
	AddFinalizer   bool
	CreateSnapshot *v1beta1.VirtualMachineSnapshot
	// Create are the objects of a copied snapshot. Once all are there, Copied has the statuses that make it ready.
	Create         []client.Object
	Copied         *Copied
	CreateRestore  *v1beta1.VirtualMachineRestore
	DeleteRestore  *v1beta1.VirtualMachineRestore
	DeleteSnapshot *v1beta1.VirtualMachineSnapshot
	// DeleteVolumes are the VolumeSnapshots of an image: the copy or the original.
	DeleteVolumes []*snapshotsv1.VolumeSnapshot
	// DeleteContents and DeleteOrigin are outside the clone's namespace.
	DeleteContents []*snapshotsv1.VolumeSnapshotContent
	DeleteOrigin   *v1beta1.VirtualMachineSnapshot
	// DeleteClone ends a clone whose VM is gone.
	DeleteClone bool
	Events      []Event
	// Status is the status to be written; nil leaves it.
	Status *clonev1beta1.VirtualMachineCloneStatus
	// RemoveFinalizer lets a clone be deleted once nothing of it is left outside its namespace.
	RemoveFinalizer bool
	frame.Requeue

	// refused is the status that says what the API server has refused; it is written before the refusal ends the step.
	refused *clonev1beta1.VirtualMachineCloneStatus
}

// Copied has the statuses by which the restore controller takes the copy of a snapshot for whole. The content's is
// written first.
type Copied struct {
	Content  v1beta1.VirtualMachineSnapshotContentStatus
	Snapshot v1beta1.VirtualMachineSnapshotStatus
}

// SnapshotName and RestoreName return the names of a clone's temporary objects.
func SnapshotName(c *clonev1beta1.VirtualMachineClone) string { return "tmp-snapshot-" + string(c.UID) }

// RestoreName does the same for the restore.
func RestoreName(c *clonev1beta1.VirtualMachineClone) string { return "tmp-restore-" + string(c.UID) }
