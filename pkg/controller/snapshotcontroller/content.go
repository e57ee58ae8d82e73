package snapshotcontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/virtkit/virtkit/pkg/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Contents reads VirtualMachineSnapshotContents, their snapshots, VMIs and VolumeSnapshots. It freezes and thaws
// guests, creates VolumeSnapshots, and writes the contents' status, finalizer and WindowAnnotation.
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
	r.VolumeSnapshots.Follow(built, contentOfVolumeSnapshot)
	r.Bound.Follow(built, r.contentOfBound)
	return nil
}

// contentOf is the content of a snapshot.
func contentOf(_ context.Context, object client.Object) []reconcile.Request {
	snapshot := object.(*v1beta1.VirtualMachineSnapshot)
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: snapshot.Namespace, Name: snapshots.ContentName(snapshot),
	}}}
}

// contentOfVolumeSnapshot is the content that has made a VolumeSnapshot.
func contentOfVolumeSnapshot(_ context.Context, object client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != ContentKind.Kind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: object.GetNamespace(), Name: owner.Name,
	}}}
}

// contentOfBound is the content that has made the VolumeSnapshot of a VolumeSnapshotContent. Only one that has been cut
// counts: the guest is thawed then, before the VolumeSnapshot says so, too.
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
		Cut: map[string]metav1.Time{},
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
		if cut, err := r.Bound.Cut(ctx, found); err != nil {
			return err
		} else if cut != nil {
			view.Cut[found.Name] = *cut
		}
	}
	stale, err := r.writes.CountsStale(ctx, r.Live, content, shown, view.Now, &snapshotv1.VolumeSnapshot{})
	if stale && err == nil && view.Served {
		return frame.ErrStale
	}
	return err
}

// guest is what runs of the content's VM.
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

// apply does what the step says.
func (r *Contents) apply(ctx context.Context, view ContentView, step *ContentStep) error {
	content := view.Content
	if err := r.applyMemory(ctx, view, step); err != nil {
		return err
	}
	if len(step.Create) > 0 {
		if failed := r.cut(ctx, view, step); failed != nil {
			if err := r.remember(ctx, content, step.Window); err != nil {
				return errors.Join(failed, err)
			}
			ctrl.LoggerFrom(ctx).Info("the volumes of a snapshot cannot be snapshotted", "err", failed)
			view.fail(step.Status, failed.Error())
			step.Later, step.RequeueAfter = false, retry
		}
	}
	if step.Thaw {
		if err := r.thaw(ctx, view, step); err != nil {
			return err
		}
	}
	if err := r.remember(ctx, content, step.Window); err != nil {
		return err
	}
	if step.Thaw && step.Window != nil {
		r.tell(content, slices.SortedFunc(maps.Values(view.VolumeSnapshots),
			func(a, b *snapshotv1.VolumeSnapshot) int { return strings.Compare(a.Name, b.Name) }))
	}
	for _, name := range step.Missing {
		r.Recorder.Eventf(content, corev1.EventTypeWarning, ReasonVolumeSnapshotMissing,
			"VolumeSnapshot %s no longer exists", name)
	}
	if step.Status != nil && !step.Later {
		if err := frame.PatchStatus(ctx, r.writes, content, &content.Status, step.Status); err != nil {
			return err
		}
	}
	if step.RemoveFinalizer {
		return r.writes.RemoveFinalizer(ctx, content, snapshots.ContentFinalizer)
	}
	return nil
}

// letGo thaws a guest after an error. What it cannot thaw stays open, and is thawed later.
func (r *Contents) letGo(ctx context.Context, view ContentView, step *ContentStep, failed error) error {
	if !step.Freeze {
		return failed
	}
	if err := r.unfreeze(ctx, view); err != nil && !lapsed(err) {
		return errors.Join(failed, err)
	}
	step.Window.Closed = true
	return failed
}

// thaw lets the guest write again. Once its time is over the guest's launcher has done so.
func (r *Contents) thaw(ctx context.Context, view ContentView, step *ContentStep) error {
	err := r.unfreeze(ctx, view)
	switch {
	case step.Window == nil && err != nil:
		ctrl.LoggerFrom(ctx).Info("a guest that may have been frozen is not thawed", "err", err)
	case lapsed(err):
		step.Window.Lapsed = true
	case err != nil && view.Now.Before(step.Window.Until):
		return err
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("a guest is not thawed; its launcher does so by itself", "err", err)
	}
	return r.stood(ctx, view.Content)
}

// unfreeze lets the guest go. That none is found means that there is none only when the VMI says so, too: a
// virt-handler that has just been started does not know its guests yet.
func (r *Contents) unfreeze(ctx context.Context, view ContentView) error {
	err := r.Freezer.Unfreeze(ctx, vmiOf(view.Content))
	if view.Guest != GuestRunning && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) {
		return nil
	}
	return err
}

// remember writes what is known of the freeze.
func (r *Contents) remember(
	ctx context.Context, content *v1beta1.VirtualMachineSnapshotContent, window *Window,
) error {
	if window == nil {
		return nil
	}
	text, err := json.Marshal(window)
	if err != nil {
		return fmt.Errorf("encode what is known of a freeze: %w", err)
	}
	if content.Annotations[WindowAnnotation] == string(text) {
		return nil
	}
	err = r.writes.Change(ctx, content, func() {
		metav1.SetMetaDataAnnotation(&content.ObjectMeta, WindowAnnotation, string(text))
	})
	if err != nil {
		return fmt.Errorf("remember the freeze of a guest: %w", err)
	}
	return nil
}
