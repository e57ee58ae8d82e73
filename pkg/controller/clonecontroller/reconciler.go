package clonecontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/restorecontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Reconciler reads clones from Client's cache, and past it what one that is under way is about: VMs, snapshots, their
// contents, restores and claims. It creates and deletes temporary snapshots and restores, with copies of
// VolumeSnapshots, their contents and ControllerRevisions for a source in another namespace, and the claim of an
// image's copy; it deletes clones whose VM or claim is gone, and writes the clones' status and finalizer.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache.
	Live     client.Reader
	Recorder record.EventRecorder
	Now      func() time.Time
	// Suffix makes the random end of a name.
	Suffix func() string
	// Snapshots reads and writes VolumeSnapshots, if the cluster has them.
	Snapshots VolumeSnapshots
	// Classes say which class snapshots an image.
	Classes Classes

	writes *frame.Writes
}

// VolumeSnapshots has the methods of volumesnapshots.Access that a clone calls.
type VolumeSnapshots interface {
	Follow(c controller.Controller, users handler.MapFunc)
}

// Classes has the methods of volumesnapshots.Storage that a clone calls.
type Classes interface {
	Settled(ctx context.Context) (bool, error)
	ReadClasses(ctx context.Context) (snapshots.Classes, error)
}

// Frame returns the reconciler's frame.
func (r *Reconciler) Frame() *frame.Frame[*clonev1beta1.VirtualMachineClone, View, Step] {
	r.writes = frame.NewWrites(r.Client)
	return &frame.Frame[*clonev1beta1.VirtualMachineClone, View, Step]{
		Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
	}
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineclone").
		For(&clonev1beta1.VirtualMachineClone{}).
		Owns(&v1beta1.VirtualMachineRestore{}).
		Watches(&v1beta1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.ofSnapshot)).
		Watches(&v1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.users(isTarget))).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.users(waits))).
		Build(r.Frame())
	if err != nil {
		return err
	}
	r.Snapshots.Follow(built, r.ofVolume)
	return nil
}

// ofSnapshot finds the clones of a snapshot, of which some are in other namespaces.
func (r *Reconciler) ofSnapshot(ctx context.Context, object client.Object) []reconcile.Request {
	return append(r.users(isSnapshot)(ctx, object), r.across(ctx, object, isSnapshot)...)
}

// ofVolume finds the clones that wait for a VolumeSnapshot, of an image in another namespace, too.
func (r *Reconciler) ofVolume(ctx context.Context, object client.Object) []reconcile.Request {
	return append(r.users(copiesVolumes)(ctx, object), r.across(ctx, object, isOrigin)...)
}

// across finds the clones in other namespaces whose source is in an object's namespace and that the object concerns.
func (r *Reconciler) across(
	ctx context.Context, object client.Object, concerns func(*clonev1beta1.VirtualMachineClone, client.Object) bool,
) []reconcile.Request {
	var list clonev1beta1.VirtualMachineCloneList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list clones")
		return nil
	}
	return frame.Requests(list.Items, func(c *clonev1beta1.VirtualMachineClone) bool {
		return clones.Crosses(c) && clones.SourceNamespace(c) == object.GetNamespace() && concerns(c, object)
	})
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
	return c.Spec.Source != nil && (snapshotOf(c) == object.GetName() || SnapshotName(c) == object.GetName())
}

// copiesVolumes reports a clone that waits for its VolumeSnapshots, and one of whose image an object is the copy.
func copiesVolumes(c *clonev1beta1.VirtualMachineClone, object client.Object) bool {
	return clones.Crosses(c) && c.Status.Phase == clonev1beta1.SnapshotInProgress ||
		clones.OfImage(c) && clones.VolumeName(c, 0) == object.GetName()
}

// isOrigin reports the VolumeSnapshot of the image that a clone copies.
func isOrigin(c *clonev1beta1.VirtualMachineClone, object client.Object) bool {
	return clones.OfImage(c) && clones.OriginName(c) == object.GetName()
}

// isTarget reports the new VM, or one that takes its name.
func isTarget(c *clonev1beta1.VirtualMachineClone, object client.Object) bool {
	if c.Status.TargetName != nil {
		return *c.Status.TargetName == object.GetName()
	}
	return c.Spec.Target != nil && c.Spec.Target.Name == object.GetName()
}

// waits reports a clone that waits for the volumes of its VM, and one of which a claim is the copy of an image.
func waits(c *clonev1beta1.VirtualMachineClone, object client.Object) bool {
	if clones.OfImage(c) {
		return isTarget(c, object)
	}
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
	held := controllerutil.ContainsFinalizer(c, clones.Finalizer)
	crosses := held || clones.Crosses(c)
	if !held && (c.DeletionTimestamp != nil || crosses && c.Status.Phase == clonev1beta1.Failed) {
		return view, frame.ErrNothing
	}
	if clones.OfImage(c) {
		err := r.lookImage(ctx, &view)
		return view, err
	}
	over := c.Status.Phase == clonev1beta1.Succeeded && c.Status.RestoreName == nil
	if over && isThere(ctx, r.Client, c) {
		return view, frame.ErrNothing
	}
	reader, failed := r.Live, c.Status.Phase == clonev1beta1.Failed
	if failed && !crosses {
		reader = r.Client // all that is asked for is what the clone has made, whose events come
	}
	var err error
	at := func(namespace, name string, into client.Object) bool {
		return lookUp(ctx, reader, namespace, name, into, &err)
	}
	get := func(name string, into client.Object) bool { return at(c.Namespace, name, into) }
	restore := &v1beta1.VirtualMachineRestore{}
	if get(RestoreName(c), restore) && metav1.IsControlledBy(restore, c) {
		view.Restore = restore
	}
	vm, target := &v1.VirtualMachine{}, &v1.VirtualMachine{}
	if view.ofMachine() && !failed && at(clones.SourceNamespace(c), c.Spec.Source.Name, vm) {
		view.Source = vm
	}
	if !failed && get(view.targetName(), target) {
		view.sort(target)
	}
	snapshot := &v1beta1.VirtualMachineSnapshot{}
	if crosses {
		view.Remote = &Remote{}
	}
	if get(view.localSnapshot(), snapshot) && (!view.ofMachine() && !crosses || metav1.IsControlledBy(snapshot, c)) {
		view.Snapshot = snapshot
		content := &v1beta1.VirtualMachineSnapshotContent{}
		if s := snapshot.Status; s != nil && s.VirtualMachineSnapshotContentName != nil &&
			get(*s.VirtualMachineSnapshotContentName, content) {
			view.Content = content
		}
	}
	if crosses {
		err = errors.Join(err, r.lookAcross(ctx, &view))
	} else if err == nil && failed && view.Restore == nil && (view.Snapshot == nil || !view.ofMachine()) {
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

// lookUp reads an object; an error other than that it is not there goes to err, after which nothing more is read.
func lookUp(
	ctx context.Context, reader client.Reader, namespace, name string, into client.Object, err *error,
) bool {
	if *err != nil || name == "" {
		return false
	}
	getErr := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if client.IgnoreNotFound(getErr) != nil && !meta.IsNoMatchError(getErr) {
		*err = fmt.Errorf("get %T %s: %w", into, name, getErr)
	}
	return getErr == nil
}

// targetName returns the name of the new VM, or "" while it has none.
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
