package snapshotcontroller

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/volumesnapshots"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Contents reads VirtualMachineSnapshotContents, their snapshots, VMIs and VolumeSnapshots. It freezes and thaws
// guests, creates VolumeSnapshots, and writes the contents' status, finalizer and annotations.
type Contents struct {
	Client   client.Client
	Live     client.Reader
	Recorder record.EventRecorder
	Now      func() time.Time
	Freezer  Freezer
	Memory   MemorySaver
	// VolumeSnapshots, Bound and Storage read CSI's kinds, if the cluster has them.
	VolumeSnapshots *volumesnapshots.Access
	Bound           *volumesnapshots.Bound
	Storage         *volumesnapshots.Storage

	writes *frame.Writes
}

// SetupWithManager registers the reconciler.
func (r *Contents) SetupWithManager(mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachinesnapshotcontent").
		For(&v1beta1.VirtualMachineSnapshotContent{}).
		Watches(&v1beta1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(contentOf)).
		Build(&frame.Frame[*v1beta1.VirtualMachineSnapshotContent, ContentView, ContentStep]{
			Writes: r.writes, Look: r.look, Next: NextContent, Apply: r.apply,
		})
	if err != nil {
		return err
	}
	r.VolumeSnapshots.Follow(built, func(ctx context.Context, object client.Object) []reconcile.Request {
		if object.GetName() != "" {
			return contentOfVolumeSnapshot(ctx, object)
		}
		return r.waiting(ctx)
	})
	r.Bound.Follow(built, r.contentOfBound)
	return nil
}

// contentOf returns the content of a snapshot.
func contentOf(_ context.Context, object client.Object) []reconcile.Request {
	snapshot := object.(*v1beta1.VirtualMachineSnapshot)
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: snapshot.Namespace, Name: snapshots.ContentName(snapshot),
	}}}
}

// waiting returns the contents that are not ready.
func (r *Contents) waiting(ctx context.Context) []reconcile.Request {
	var list v1beta1.VirtualMachineSnapshotContentList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list snapshot contents")
		return nil
	}
	return frame.Requests(list.Items, func(content *v1beta1.VirtualMachineSnapshotContent) bool {
		return content.Status == nil || content.Status.ReadyToUse == nil || !*content.Status.ReadyToUse
	})
}

// contentOfVolumeSnapshot returns the content that has made a VolumeSnapshot.
func contentOfVolumeSnapshot(_ context.Context, object client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != ContentKind.Kind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: object.GetNamespace(), Name: owner.Name,
	}}}
}

// contentOfBound returns the content that has made the VolumeSnapshot of a VolumeSnapshotContent. Only one that has
// been taken counts: the guest is thawed then, before the VolumeSnapshot says so, too.
func (r *Contents) contentOfBound(ctx context.Context, object client.Object) []reconcile.Request {
	bound := object.(*snapshotv1.VolumeSnapshotContent)
	if bound.Status == nil || bound.Status.CreationTime == nil {
		return nil
	}
	ref := bound.Spec.VolumeSnapshotRef
	snapshot, err := r.VolumeSnapshots.Get(ctx, ref.Namespace, ref.Name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "get the VolumeSnapshot of a VolumeSnapshotContent", "resource", bound.Name)
		return nil
	}
	if snapshot == nil || snapshot.Status != nil && snapshot.Status.CreationTime != nil {
		return nil
	}
	return contentOfVolumeSnapshot(ctx, snapshot)
}

// look gathers what NextContent wants to know.
func (r *Contents) look(ctx context.Context, content *v1beta1.VirtualMachineSnapshotContent) (ContentView, error) {
	view := ContentView{
		Content: content, Now: r.Now(), VolumeSnapshots: map[string]*snapshotv1.VolumeSnapshot{},
		Taken: map[string]metav1.Time{},
	}
	if content.Spec.VirtualMachineSnapshotName == nil || content.Spec.Source.VirtualMachine == nil {
		return view, frame.ErrNothing // not made here
	}
	snapshot := &v1beta1.VirtualMachineSnapshot{}
	key := types.NamespacedName{Namespace: content.Namespace, Name: *content.Spec.VirtualMachineSnapshotName}
	switch err := r.Client.Get(ctx, key, snapshot); {
	case err == nil && snapshots.ContentName(snapshot) == content.Name:
		view.Snapshot = snapshot
	case client.IgnoreNotFound(err) != nil:
		return view, fmt.Errorf("get VirtualMachineSnapshot %s: %w", key.Name, err)
	}
	for _, settled := range []func(context.Context) (bool, error){r.VolumeSnapshots.Settled, r.Storage.Settled} {
		if is, err := settled(ctx); !is || err != nil {
			return view, waitFor(err)
		}
	}
	view.Served = r.VolumeSnapshots.Served()
	if err := r.lookAtVolumeSnapshots(ctx, &view); err != nil {
		return view, err
	}
	var err error
	if view.Guest, view.GuestUID, err = r.guest(ctx, content); err != nil {
		return view, err
	}
	if err := r.lookAtMemory(ctx, &view); err != nil {
		return view, err
	}
	view.Classes, err = r.Storage.ReadClasses(ctx)
	return view, err
}

// lookAtVolumeSnapshots finds those of the content. It waits for those that were just made.
func (r *Contents) lookAtVolumeSnapshots(ctx context.Context, view *ContentView) error {
	content, shown := view.Content, map[types.UID]bool{}
	for _, backup := range content.Spec.VolumeBackups {
		if backup.VolumeSnapshotName == nil {
			continue
		}
		found, err := r.VolumeSnapshots.Get(ctx, content.Namespace, *backup.VolumeSnapshotName)
		if err != nil {
			return err
		}
		if found == nil || !metav1.IsControlledBy(found, content) {
			continue
		}
		shown[found.UID] = true
		view.VolumeSnapshots[found.Name] = found
		if taken, err := r.Bound.Taken(ctx, found); err != nil {
			return err
		} else if taken != nil {
			view.Taken[found.Name] = *taken
		}
	}
	stale, err := r.writes.CountsStale(ctx, r.Live, content, shown, view.Now, &snapshotv1.VolumeSnapshot{})
	if stale && err == nil && view.Served {
		return frame.ErrStale
	}
	return err
}

// guest returns what runs of the content's VM.
func (r *Contents) guest(
	ctx context.Context, content *v1beta1.VirtualMachineSnapshotContent,
) (Guest, types.UID, error) {
	vmi := &v1.VirtualMachineInstance{}
	err := r.Client.Get(ctx, vmiOf(content), vmi)
	if apierrors.IsNotFound(err) {
		return NoGuest, "", nil
	}
	if err != nil {
		return NoGuest, "", fmt.Errorf("get VMI: %w", err)
	}
	return guestOf(vmi), vmi.UID, nil
}

func guestOf(vmi *v1.VirtualMachineInstance) Guest {
	switch {
	case !life.Alive(vmi):
		return NoGuest
	case vmi.DeletionTimestamp != nil:
		return GuestChanging
	case vmi.Status.Phase == v1.Running:
		return GuestRunning
	case vmi.Status.Phase == v1.Scheduled:
		return GuestChanging
	}
	return GuestWaiting
}

func vmiOf(content *v1beta1.VirtualMachineSnapshotContent) types.NamespacedName {
	return types.NamespacedName{Namespace: content.Namespace, Name: content.Spec.Source.VirtualMachine.Name}
}
