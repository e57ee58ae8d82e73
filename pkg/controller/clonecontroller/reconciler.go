package clonecontroller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/restorecontroller"
	"github.com/virtkit/virtkit/pkg/frame"
)

// Reconciler reads clones from Client's cache, and past it what one that is under way is about: VMs, snapshots, their
// contents, restores and claims. It creates and deletes temporary snapshots and restores, deletes clones whose VM is
// gone, and writes the clones' status.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache.
	Live     client.Reader
	Recorder record.EventRecorder
	Now      func() time.Time
	// Suffix makes the random end of a name.
	Suffix func() string

	writes *frame.Writes
}

// Frame is what reconciles.
func (r *Reconciler) Frame() *frame.Frame[*clonev1beta1.VirtualMachineClone, View, Step] {
	r.writes = frame.NewWrites(r.Client)
	return &frame.Frame[*clonev1beta1.VirtualMachineClone, View, Step]{
		Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
	}
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineclone").
		For(&clonev1beta1.VirtualMachineClone{}).
		Owns(&v1beta1.VirtualMachineRestore{}).
		Watches(&v1beta1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.users(isSnapshot))).
		Watches(&v1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.users(isTarget))).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.users(waits))).
		Complete(r.Frame())
}

// users finds the clones of an object's namespace that it concerns.
func (r *Reconciler) users(concerns func(*clonev1beta1.VirtualMachineClone, client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		var list clonev1beta1.VirtualMachineCloneList
		err := r.Client.List(ctx, &list, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "list clones")
			return nil
		}
		return frame.Requests(list.Items, func(c *clonev1beta1.VirtualMachineClone) bool { return concerns(c, object) })
	}
}

func isSnapshot(c *clonev1beta1.VirtualMachineClone, object client.Object) bool {
	return c.Spec.Source != nil && snapshotOf(c) == object.GetName()
}

// isTarget reports the new VM, or one that takes its name.
func isTarget(c *clonev1beta1.VirtualMachineClone, object client.Object) bool {
	if c.Status.TargetName != nil {
		return *c.Status.TargetName == object.GetName()
	}
	return c.Spec.Target != nil && c.Spec.Target.Name == object.GetName()
}

// waits reports a clone that waits for the volumes of its VM.
func waits(c *clonev1beta1.VirtualMachineClone, _ client.Object) bool {
	return c.Status.Phase == clonev1beta1.Succeeded && c.Status.RestoreName != nil
}

// isThere reports that the clone's VM is in the cache.
func isThere(ctx context.Context, cache client.Reader, c *clonev1beta1.VirtualMachineClone) bool {
	return c.Status.TargetName != nil && cache.Get(ctx,
		types.NamespacedName{Namespace: c.Namespace, Name: *c.Status.TargetName}, &v1.VirtualMachine{}) == nil
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, c *clonev1beta1.VirtualMachineClone) (View, error) {
	view := View{Clone: c, Now: r.Now(), Suffix: r.Suffix()}
	if c.Spec.Source == nil {
		return view, frame.ErrNothing // Admission refuses it.
	}
	over := c.Status.Phase == clonev1beta1.Succeeded && c.Status.RestoreName == nil
	if over && isThere(ctx, r.Client, c) {
		return view, frame.ErrNothing
	}
	reader, failed := r.Live, c.Status.Phase == clonev1beta1.Failed
	if failed {
		reader = r.Client // all that is asked for is what the clone has made, whose events come
	}
	var err error
	get := func(name string, into client.Object) bool {
		if err != nil || name == "" {
			return false
		}
		getErr := reader.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, into)
		if client.IgnoreNotFound(getErr) != nil {
			err = fmt.Errorf("get %T %s: %w", into, name, getErr)
		}
		return getErr == nil
	}
	restore := &v1beta1.VirtualMachineRestore{}
	if get(RestoreName(c), restore) && metav1.IsControlledBy(restore, c) {
		view.Restore = restore
	}
	vm, target := &v1.VirtualMachine{}, &v1.VirtualMachine{}
	if view.ofMachine() && !failed && get(c.Spec.Source.Name, vm) {
		view.Source = vm
	}
	if !failed && get(view.targetName(), target) {
		view.sort(target)
	}
	snapshot := &v1beta1.VirtualMachineSnapshot{}
	if get(snapshotOf(c), snapshot) && (!view.ofMachine() || metav1.IsControlledBy(snapshot, c)) {
		view.Snapshot = snapshot
		content := &v1beta1.VirtualMachineSnapshotContent{}
		if s := snapshot.Status; s != nil && s.VirtualMachineSnapshotContentName != nil &&
			get(*s.VirtualMachineSnapshotContentName, content) {
			view.Content = content
		}
	}
	if err == nil && failed && view.Restore == nil && (view.Snapshot == nil || !view.ofMachine()) {
		return view, frame.ErrNothing
	}
	if err != nil || c.Status.Phase != clonev1beta1.Succeeded || view.Restore == nil || view.Restore.Status == nil {
		return view, err
	}
	for _, o := range view.Restore.Status.Restores {
		claim := &corev1.PersistentVolumeClaim{}
		if !get(o.PersistentVolumeClaimName, claim) || claim.Status.Phase != corev1.ClaimBound {
			view.Unbound = append(view.Unbound, o.PersistentVolumeClaimName)
		}
	}
	return view, err
}

// targetName is the name of the new VM, empty while it has none.
func (v *View) targetName() string {
	switch c := v.Clone; {
	case c.Status.TargetName != nil:
		return *c.Status.TargetName
	case v.Restore != nil:
		return v.Restore.Spec.Target.Name
	case c.Spec.Target != nil:
		return c.Spec.Target.Name
	}
	return ""
}

// sort takes a VM of the new VM's name for the new one, or for another.
func (v *View) sort(vm *v1.VirtualMachine) {
	made := strings.HasPrefix(vm.Annotations[restorecontroller.LastAnnotation], RestoreName(v.Clone)+"-")
	switch {
	case v.Clone.Status.TargetName != nil:
		v.Target = vm
	case !made:
		v.Other = vm
	}
}

// apply does what the step says, in the order of its fields.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	c := view.Clone
	if step.CreateSnapshot != nil {
		if err := r.writes.Create(ctx, step.CreateSnapshot); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("failed creating snapshot %s for clone %s: %w", step.CreateSnapshot.Name, c.Name, err)
		}
	}
	if step.CreateRestore != nil {
		err := r.writes.Create(ctx, step.CreateRestore)
		switch {
		case apierrors.IsAlreadyExists(err):
		case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
			refused := view.fail(reasonRestoreFailed,
				fmt.Sprintf("failed creating restore %s for clone %s: %v", step.CreateRestore.Name, c.Name, err))
			step.Events, step.Status = refused.Events, refused.Status
		case err != nil:
			return fmt.Errorf("failed creating restore %s for clone %s: %w", step.CreateRestore.Name, c.Name, err)
		}
	}
	if step.DeleteRestore != nil {
		if _, err := r.writes.Delete(ctx, c, step.DeleteRestore); err != nil {
			return fmt.Errorf("cannot clean up restore %s for clone %s: %w", step.DeleteRestore.Name, c.Name, err)
		}
		step.RequeueAfter = frame.CatchUp
	}
	if step.DeleteSnapshot != nil {
		if _, err := r.writes.Delete(ctx, c, step.DeleteSnapshot); err != nil {
			return fmt.Errorf("cannot clean up snapshot %s for clone %s: %w", step.DeleteSnapshot.Name, c.Name, err)
		}
		step.RequeueAfter = frame.CatchUp
	}
	if step.DeleteClone {
		uid := c.UID
		err := r.Client.Delete(ctx, c, client.Preconditions{UID: &uid})
		return client.IgnoreNotFound(err)
	}
	for _, event := range step.Events {
		r.Recorder.Event(c, event.Type, event.Reason, event.Message)
	}
	if step.Status == nil {
		return nil
	}
	return frame.PatchStatus(ctx, r.writes, c, &c.Status, *step.Status)
}
