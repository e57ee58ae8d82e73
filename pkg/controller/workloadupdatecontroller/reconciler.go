package workloadupdatecontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// Reasons of events on a VMI; KubeVirt's words.
const (
	reasonEvict       = "SuccessfulEvict"
	reasonFailedEvict = "FailedEvict"
)

// settle is the delay in which more news may come: each look is at all VMIs.
const settle = time.Second

// Reconciler reads the KubeVirt resource, VMIs, migrations and pods from Client's cache. It writes migrations and
// evictions, one label of VMIs, and status.outdatedVirtualMachineInstanceWorkloads of the KubeVirt resource. It needs
// the indexes of package vmicontroller.
type Reconciler struct {
	Client   client.Client
	Recorder record.EventRecorder
	// Image is virt-launcher's, Limit how many migrations there may be in the cluster at a time.
	Image string
	Limit func() int
	Now   func() time.Time

	writes            *frame.Writes
	looked, lastBatch time.Time
	// tried is when a guest's eviction was last tried. A new leader starts anew, which makes one batch early.
	tried map[types.UID]time.Time
}

// SetupWithManager registers the reconciler. There is one thing to reconcile, the KubeVirt resource, so that it never
// works twice at a time.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{
			{NamespacedName: types.NamespacedName{Namespace: names.Namespace, Name: names.KubeVirt}},
		}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("workloadupdate").
		For(&v1.KubeVirt{}).
		Watches(&v1.VirtualMachineInstance{}, one, builder.WithPredicates(r.concerns())).
		Watches(&v1.VirtualMachineInstanceMigration{}, one, builder.WithPredicates(ends)).
		Complete(&frame.Frame[*v1.KubeVirt, View, Step]{Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply})
}

// concerns lets through what changes of a VMI that is outdated or must move, and that it is or is no more: nothing of
// the others.
func (r *Reconciler) concerns() predicate.Predicate {
	type facts struct{ outdated, marked, must, running, migratable, migrating bool }
	of := func(object client.Object) facts {
		instance := object.(*v1.VirtualMachineInstance)
		_, marked := instance.Labels[v1.OutdatedLauncherImageLabel]
		f := facts{outdated: Outdated(instance, r.Image), marked: marked, must: mustMove(instance)}
		if f.outdated || f.must {
			f.running, f.migratable = instance.Status.Phase == v1.Running, migrations.Migratable(instance)
			f.migrating = migrations.UnderWay(instance)
		}
		return f
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return of(e.Object) != facts{} },
		UpdateFunc: func(e event.UpdateEvent) bool { return of(e.ObjectOld) != of(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return of(e.Object) != facts{} },
	}
}

// ends lets through the end of a migration, which makes room for the next.
var ends = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !e.ObjectOld.(*v1.VirtualMachineInstanceMigration).IsFinal() &&
			e.ObjectNew.(*v1.VirtualMachineInstanceMigration).IsFinal()
	},
}

// look gathers what Next wants to know, which is everything.
func (r *Reconciler) look(ctx context.Context, kv *v1.KubeVirt) (View, error) {
	if kv.Namespace != names.Namespace || kv.Name != names.KubeVirt {
		return View{}, frame.ErrNothing // Only one counts; admission refuses others.
	}
	now := r.Now()
	if left := settle - now.Sub(r.looked); left > 0 {
		return View{}, frame.WaitError(left)
	}
	view := View{
		KubeVirt: kv, Strategy: kv.Spec.WorkloadUpdateStrategy, Settled: Settled(kv), Image: r.Image, Limit: r.Limit(),
		LastBatch: r.lastBatch, Tried: r.tried, Now: now,
	}
	// Not copied, since there may be many and none is changed.
	var vmis v1.VirtualMachineInstanceList
	var all v1.VirtualMachineInstanceMigrationList
	err := errors.Join(r.Client.List(ctx, &vmis, client.UnsafeDisableDeepCopy),
		r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy))
	if err != nil {
		return View{}, fmt.Errorf("list VMIs and migrations: %w", err)
	}
	for i := range vmis.Items {
		if r.writes.Stale(&vmis.Items[i]) {
			return View{}, frame.ErrStale
		}
		view.VMIs = append(view.VMIs, &vmis.Items[i])
	}
	for i := range all.Items {
		view.Migrations = append(view.Migrations, &all.Items[i])
	}
	err = r.lookAtGuests(ctx, &view)
	return view, err
}

// lookAtGuests finds the pods of the guests that are to be evicted.
func (r *Reconciler) lookAtGuests(ctx context.Context, view *View) error {
	if !wants(view.Strategy, v1.WorkloadUpdateMethodEvict) {
		return nil
	}
	view.GuestPods = map[types.UID]*corev1.Pod{}
	for _, instance := range Next(*view).Evict {
		pods, err := vmicontroller.Pods(ctx, r.Client, instance)
		if err != nil {
			return fmt.Errorf("VMI %s: %w", keyOf(instance), err)
		}
		view.GuestPods[instance.UID] = life.GuestPod(instance, pods)
	}
	return nil
}

// Settled reports whether the components are there and none of them is being rolled out.
func Settled(kv *v1.KubeVirt) bool {
	if kv.Status.Phase != v1.KubeVirtPhaseDeployed ||
		kv.Status.ObservedKubeVirtVersion != kv.Status.TargetKubeVirtVersion {
		return false
	}
	for _, c := range kv.Status.Conditions {
		if c.Type == v1.KubeVirtConditionProgressing && c.Status != corev1.ConditionFalse ||
			c.Type == v1.KubeVirtConditionAvailable && c.Status != corev1.ConditionTrue {
			return false
		}
	}
	return true
}

func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	r.looked = view.Now
	var errs []error
	for _, instance := range step.Mark {
		errs = append(errs, r.label(ctx, instance, true))
	}
	for _, instance := range step.Unmark {
		errs = append(errs, r.label(ctx, instance, false))
	}
	errs = append(errs, r.count(ctx, view.KubeVirt, step.Outdated))
	for _, move := range step.Migrate {
		errs = append(errs, r.migrate(ctx, move))
	}
	if len(step.Evict) > 0 {
		r.lastBatch = r.Now()
	}
	r.forget()
	for _, instance := range step.Evict {
		errs = append(errs, r.evict(ctx, instance, view.GuestPods[instance.UID]))
	}
	return errors.Join(errs...)
}

// label sets a VMI's label, or removes it. It writes the label alone, so that the writers of its status are not
// disturbed.
func (r *Reconciler) label(ctx context.Context, instance *v1.VirtualMachineInstance, marked bool) error {
	after := instance.DeepCopy()
	if marked {
		metav1.SetMetaDataLabel(&after.ObjectMeta, v1.OutdatedLauncherImageLabel, "")
	} else {
		delete(after.Labels, v1.OutdatedLauncherImageLabel)
	}
	if err := r.writes.PatchAs(ctx, after, client.MergeFrom(instance)); err != nil {
		return fmt.Errorf("label VMI %s: %w", keyOf(instance), err)
	}
	return nil
}

func (r *Reconciler) count(ctx context.Context, kv *v1.KubeVirt, outdated int) error {
	if was := kv.Status.OutdatedVirtualMachineInstanceWorkloads; was != nil && *was == outdated {
		return nil
	}
	after := kv.DeepCopy()
	after.Status.OutdatedVirtualMachineInstanceWorkloads = &outdated
	if err := r.writes.PatchStatusAs(ctx, after, client.MergeFrom(kv)); err != nil {
		return fmt.Errorf("write status.outdatedVirtualMachineInstanceWorkloads: %w", err)
	}
	return nil
}

func (r *Reconciler) migrate(ctx context.Context, move Move) error {
	if err := migrationcontroller.CreateUpdate(ctx, r.writes, r.Recorder, move.VMI, move.Name); err != nil {
		return fmt.Errorf("VMI %s: %w", keyOf(move.VMI), err)
	}
	return nil
}

// evict asks for the end of the guest's pod. That a budget or an eviction strategy forbids it is no error; the guest
// has its turn again.
func (r *Reconciler) evict(ctx context.Context, instance *v1.VirtualMachineInstance, pod *corev1.Pod) error {
	if r.tried == nil {
		r.tried = map[types.UID]time.Time{}
	}
	r.tried[instance.UID] = r.Now()
	if pod == nil {
		return nil // it has ended
	}
	// Not by r.writes: what is made is not read back.
	err := r.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	switch {
	case err == nil:
		r.Recorder.Event(instance, corev1.EventTypeNormal, reasonEvict,
			"Initiated eviction of the VMI's pod for automated workload update")
	case apierrors.IsNotFound(err):
	case apierrors.IsTooManyRequests(err), apierrors.IsForbidden(err):
		r.Recorder.Eventf(instance, corev1.EventTypeWarning, reasonFailedEvict,
			"Eviction for automated workload update was refused: %v", err)
	default:
		return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// forget drops what was tried long ago: a guest that is still there has had its turn by then, or is as good as new.
func (r *Reconciler) forget() {
	for uid, at := range r.tried {
		if r.Now().Sub(at) > time.Hour {
			delete(r.tried, uid)
		}
	}
}
