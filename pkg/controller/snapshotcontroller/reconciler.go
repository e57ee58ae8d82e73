package snapshotcontroller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/cdi"
	"github.com/virtkit/virtkit/pkg/controller/volumesnapshots"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// snapshotsByVM has snapshots by the name of their VM.
const snapshotsByVM = "source-vm"

// Reconciler reads VirtualMachineSnapshots, their contents, VMs and VMIs, and claims. It creates and deletes contents
// and copies of ControllerRevisions, and writes the snapshots' status and finalizer, and the lock of VMs.
type Reconciler struct {
	Client client.Client
	// Live reads objects that the cache has not, or not completely: claims, pods, ControllerRevisions, and the content
	// of a snapshot that ends.
	Live     client.Reader
	Recorder record.EventRecorder
	Now      func() time.Time
	CDI      *cdi.Access
	// VolumeSnapshots and Storage read CSI's kinds, if the cluster has them.
	VolumeSnapshots *volumesnapshots.Access
	Storage         *volumesnapshots.Storage

	writes *frame.Writes
}

// SetupWithManager registers the reconciler and its index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	err := frame.Index(ctx, mgr.GetFieldIndexer(), &v1beta1.VirtualMachineSnapshot{}, snapshotsByVM, "snapshots by VM",
		func(snapshot *v1beta1.VirtualMachineSnapshot) []string { return []string{snapshot.Spec.Source.Name} })
	if err != nil {
		return err
	}
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachinesnapshot").
		For(&v1beta1.VirtualMachineSnapshot{}).
		Watches(&v1beta1.VirtualMachineSnapshotContent{}, handler.EnqueueRequestsFromMapFunc(snapshotOf)).
		Watches(&v1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.snapshotsOf)).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.snapshotsOf)).
		Build(&frame.Frame[*v1beta1.VirtualMachineSnapshot, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
	if err != nil {
		return err
	}
	r.Storage.Classes.Follow(built, r.waiting)
	r.VolumeSnapshots.Follow(built, func(ctx context.Context, object client.Object) []reconcile.Request {
		if object.GetName() != "" {
			return nil // it is its content's, which this follows
		}
		return r.waiting(ctx, object)
	})
	return nil
}

// snapshotOf returns the snapshot of a content.
func snapshotOf(_ context.Context, object client.Object) []reconcile.Request {
	name := object.(*v1beta1.VirtualMachineSnapshotContent).Spec.VirtualMachineSnapshotName
	if name == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: *name}}}
}

// open reports a snapshot on which more is to be decided.
func open(snapshot *v1beta1.VirtualMachineSnapshot) bool {
	return snapshots.Progressing(snapshot) || snapshot.DeletionTimestamp != nil
}

// snapshotsOf returns the unfinished snapshots of a VM, or of a VMI's VM.
func (r *Reconciler) snapshotsOf(ctx context.Context, object client.Object) []reconcile.Request {
	var list v1beta1.VirtualMachineSnapshotList
	err := r.Client.List(ctx, &list, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{snapshotsByVM: object.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list snapshots by VM", "vm", client.ObjectKeyFromObject(object))
		return nil
	}
	return frame.Requests(list.Items, func(s *v1beta1.VirtualMachineSnapshot) bool {
		vm, is := object.(*v1.VirtualMachine)
		// One that is not ready may have waited for the cache to show that the VM was released.
		return open(s) || is && (snapshots.Locked(vm, s.Name) || !snapshots.Ready(s))
	})
}

// waiting returns all snapshots that are open.
func (r *Reconciler) waiting(ctx context.Context, _ client.Object) []reconcile.Request {
	var list v1beta1.VirtualMachineSnapshotList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list snapshots")
		return nil
	}
	return frame.Requests(list.Items, open)
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, snapshot *v1beta1.VirtualMachineSnapshot) (View, error) {
	view := View{Snapshot: snapshot, Now: r.Now()}
	if snapshot.Spec.Source.Kind != snapshots.SourceKind {
		return view, frame.ErrNothing // Admission refuses it.
	}
	if _, copied := snapshot.Annotations[clones.CopiedAnnotation]; copied &&
		!controllerutil.ContainsFinalizer(snapshot, snapshots.SnapshotFinalizer) {
		return view, frame.ErrNothing // it was taken in another namespace
	}
	if err := r.lookAtContent(ctx, &view); err != nil {
		return view, err
	}
	if err := r.lookAtVM(ctx, &view); err != nil || view.VM == nil {
		return view, err
	}
	if !open(snapshot) && (snapshot.Status.SnapshotVolumes != nil || view.Content == nil) {
		return view, nil
	}
	return view, r.lookAtVolumes(ctx, &view)
}

// lookAtContent finds the content. A snapshot that ends deletes it, which nobody does later: one that was made a moment
// before, which the cache does not show yet, is looked for past the cache.
func (r *Reconciler) lookAtContent(ctx context.Context, view *View) error {
	snapshot, content := view.Snapshot, &v1beta1.VirtualMachineSnapshotContent{}
	key := types.NamespacedName{Namespace: snapshot.Namespace, Name: snapshots.ContentName(snapshot)}
	err := r.Client.Get(ctx, key, content)
	if apierrors.IsNotFound(err) && open(snapshot) && snapshots.Terminating(snapshot, view.Now) {
		err = r.Live.Get(ctx, key, content)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get content: %w", err)
	case r.writes.Deleted(content):
		return frame.ErrStale
	}
	view.Content = content
	return nil
}

// lookAtVM finds the VM and its VMI. One that was made anew under its name is another.
func (r *Reconciler) lookAtVM(ctx context.Context, view *View) error {
	key := types.NamespacedName{Namespace: view.Snapshot.Namespace, Name: view.Snapshot.Spec.Source.Name}
	vm := &v1.VirtualMachine{}
	err := r.Client.Get(ctx, key, vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get VM: %w", err)
	}
	if status := view.Snapshot.Status; status != nil && status.SourceUID != nil && *status.SourceUID != vm.UID {
		return nil
	}
	if r.writes.Stale(vm) {
		return frame.ErrStale
	}
	view.VM = vm
	vmi := &v1.VirtualMachineInstance{}
	if err := r.Client.Get(ctx, key, vmi); err == nil {
		view.VMI = vmi
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get VMI: %w", err)
	}
	by, locked := snapshots.SnapshotOf(vm)
	if !locked || by == view.Snapshot.Name {
		return nil
	}
	var holder v1beta1.VirtualMachineSnapshot
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: by}, &holder)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get VirtualMachineSnapshot %s: %w", by, err)
	}
	view.HolderGone = err != nil
	return nil
}

// lookAtVolumes finds the VM's volumes, their claims, and who uses them.
func (r *Reconciler) lookAtVolumes(ctx context.Context, view *View) error {
	if settled, err := r.VolumeSnapshots.Settled(ctx); err != nil || !settled {
		return waitFor(err)
	}
	if settled, err := r.Storage.Settled(ctx); err != nil || !settled {
		return waitFor(err)
	}
	view.Served = r.VolumeSnapshots.Served()
	facts, err := r.Storage.Facts(ctx, view.VM, view.VMI)
	if err != nil {
		return err
	}
	view.Classed = len(facts.Classes.Snapshots) > 0
	view.Volumes, view.Troubles = snapshots.Volumes(view.VM, view.VMI, facts), map[string]string{}
	for _, volume := range view.Volumes {
		if volume.Claim == "" {
			continue
		}
		claim := facts.Claims[volume.Claim]
		if claim == nil && facts.State != nil && facts.State.Name == volume.Claim {
			claim = facts.State
		}
		dv, err := r.CDI.Get(ctx, view.VM.Namespace, volume.Claim)
		if err != nil {
			return err
		}
		view.Troubles[volume.Claim] = Trouble(claim, dv)
	}
	if snapshots.Locked(view.VM, view.Snapshot.Name) || guestOf(view.VMI) != NoGuest {
		return nil
	}
	return r.lookAtPods(ctx, view)
}

func waitFor(err error) error {
	if err != nil {
		return err
	}
	return frame.ErrStale
}

// lookAtPods counts the pods that use the claims of a VM that is off, of whatever kind: the cache has the launchers
// only.
func (r *Reconciler) lookAtPods(ctx context.Context, view *View) error {
	var used []string
	for _, volume := range view.Volumes {
		if volume.Claim != "" {
			used = append(used, volume.Claim)
		}
	}
	if len(used) == 0 {
		return nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(view.VM.Namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		if slices.ContainsFunc(used, func(claim string) bool { return claims.UsedBy(&pods.Items[i], claim) }) {
			view.Pods++
		}
	}
	return nil
}

// apply does what the step says.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	snapshot := view.Snapshot
	if step.AddFinalizer {
		return r.writes.Change(ctx, snapshot,
			func() { controllerutil.AddFinalizer(snapshot, snapshots.SnapshotFinalizer) })
	}
	if step.Lock || step.CreateContent {
		return r.begin(ctx, view, step)
	}
	if step.DeleteContent {
		if _, err := r.writes.Delete(ctx, view.Content); err != nil {
			return fmt.Errorf("delete content %s: %w", view.Content.Name, err)
		}
	}
	if step.Unlock {
		if err := r.unlock(ctx, view); err != nil {
			return err
		}
	}
	if step.Later {
		return nil
	}
	if err := frame.PatchStatus(ctx, r.writes, snapshot, &snapshot.Status, step.Status); err != nil {
		return err
	}
	if step.Release {
		if err := r.release(ctx, view); err != nil {
			return err
		}
	}
	if step.RemoveFinalizer {
		return r.writes.RemoveFinalizer(ctx, snapshot, snapshots.SnapshotFinalizer)
	}
	return nil
}

// lock has nobody but this snapshot change the VM.
func (r *Reconciler) lock(ctx context.Context, view View) error {
	vm := view.VM
	err := frame.PatchStatus(ctx, r.writes, vm, &vm.Status.SnapshotInProgress, &view.Snapshot.Name)
	if err != nil {
		return fmt.Errorf("lock VM %s: %w", vm.Name, err)
	}
	return nil
}

// addSourceFinalizer keeps the VM from vanishing while it is locked.
func (r *Reconciler) addSourceFinalizer(ctx context.Context, view View) error {
	if controllerutil.ContainsFinalizer(view.VM, snapshots.SourceFinalizer) {
		return nil
	}
	vm := view.VM
	err := r.writes.Change(ctx, vm, func() { controllerutil.AddFinalizer(vm, snapshots.SourceFinalizer) })
	if err != nil {
		return fmt.Errorf("lock VM %s: %w", vm.Name, err)
	}
	return nil
}

// unlock lets others change the VM, which may be deleted meanwhile.
func (r *Reconciler) unlock(ctx context.Context, view View) error {
	vm := view.VM
	if _, locked := snapshots.SnapshotOf(vm); !locked {
		return nil
	}
	err := frame.PatchStatus(ctx, r.writes, vm, &vm.Status.SnapshotInProgress, nil)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("unlock VM %s: %w", vm.Name, err)
	}
	return nil
}

// release lets an unlocked VM be deleted. One that another snapshot has locked meanwhile is another version.
func (r *Reconciler) release(ctx context.Context, view View) error {
	err := r.writes.RemoveFinalizer(ctx, view.VM, snapshots.SourceFinalizer)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("unlock VM %s: %w", view.VM.Name, err)
	}
	return nil
}
