package evacuationcontroller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/nodecontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/eviction"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// marked is the index of VMIs that are to leave a node, by that node.
const marked = "evacuation-node"

// Reconciler reads VMIs, nodes, pods and migrations from Client's cache, and makes and removes migrations.
type Reconciler struct {
	Client   client.Client
	Recorder record.EventRecorder
	Config   func() config.Config
	Now      func() time.Time

	writes *frame.Writes
	// reported holds, by UID of a VMI, the event last recorded for it, so that it is not recorded at each look.
	reported sync.Map
}

// SetupWithManager registers the reconciler and its index; those of the VMI, migration and node reconcilers are
// expected.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	err := frame.Index(ctx, mgr.GetFieldIndexer(), &v1.VirtualMachineInstance{}, marked,
		"VMIs by the node that they are to leave",
		func(vmi *v1.VirtualMachineInstance) []string { return []string{vmi.Status.EvacuationNodeName} })
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("evacuation").
		For(&v1.VirtualMachineInstance{}).
		Watches(&v1.VirtualMachineInstanceMigration{}, handler.EnqueueRequestsFromMapFunc(r.waiting)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.on), builder.WithPredicates(retainted)).
		// One at a time, so that the limits hold.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(&frame.Frame[*v1.VirtualMachineInstance, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
}

// retainted lets a node through whose taints have changed.
var retainted = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.(*corev1.Node).Spec.Taints,
			e.ObjectNew.(*corev1.Node).Spec.Taints)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// waiting returns the VMI of a migration, and when that is over those that may have waited for it.
func (r *Reconciler) waiting(ctx context.Context, obj client.Object) []reconcile.Request {
	over := obj.(*v1.VirtualMachineInstanceMigration)
	out := []reconcile.Request{
		{NamespacedName: types.NamespacedName{Namespace: over.Namespace, Name: over.Spec.VMIName}},
	}
	if over.Status.MigrationState == nil || !over.IsFinal() {
		return out
	}
	return append(out, r.list(ctx, client.MatchingFields{marked: over.Status.MigrationState.SourceNode})...)
}

// on returns the VMIs on a node.
func (r *Reconciler) on(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.list(ctx, client.MatchingFields{nodecontroller.VMIsByNode: obj.GetName()})
}

func (r *Reconciler) list(ctx context.Context, which client.ListOption) []reconcile.Request {
	var vmis v1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis, which); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMIs to evacuate")
		return nil
	}
	return frame.Requests(vmis.Items, nil)
}

// look gathers what Next decides on. For a VMI that may stay that is only the VMI.
func (r *Reconciler) look(ctx context.Context, instance *v1.VirtualMachineInstance) (View, error) {
	c := r.Config()
	view := View{
		VMI: instance, Strategy: eviction.Strategy(instance, c.EvictionStrategy), Now: r.Now(),
		Limits: Limits{
			Cluster: int(*c.Migrations.ParallelMigrationsPerCluster),
			PerNode: int(*c.Migrations.ParallelOutboundMigrationsPerNode),
		},
	}
	if reported, ok := r.reported.Load(instance.UID); ok {
		view.Reported = reported.(vmicontroller.Event)
	}
	var err error
	if view.Draining, err = r.draining(ctx, instance.Status.NodeName); err != nil {
		return view, err
	}
	if !Wanted(instance, view.Strategy, view.Draining) {
		return view, nil
	}
	pods, err := vmicontroller.Pods(ctx, r.Client, instance)
	if err != nil {
		return view, err
	}
	for _, pod := range pods {
		if !life.PodEnded(pod) {
			view.Pods++
		}
	}
	var all v1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &all); err != nil {
		return view, fmt.Errorf("list migrations: %w", err)
	}
	view.Counts, err = migrationcontroller.Count(ctx, r.Client, all.Items, instance)
	return view, err
}

// draining reports whether a node has the taint by which its guests are to leave.
func (r *Reconciler) draining(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	var node corev1.Node
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get node %s: %w", name, err)
	}
	key := *r.Config().Migrations.NodeDrainTaintKey
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == key && taint.Effect == corev1.TaintEffectNoSchedule
	}), nil
}

func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	instance := view.VMI
	if step.Forget {
		r.reported.Delete(instance.UID)
	}
	if warning := step.Event; warning != nil {
		r.reported.Store(instance.UID, *warning)
		r.Recorder.Event(instance, warning.Type, warning.Reason, warning.Message)
	}
	if step.Create == nil {
		return nil
	}
	switch err := r.writes.Create(ctx, step.Create); {
	case err == nil:
		r.Recorder.Eventf(instance, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created Migration %s to leave node %s", step.Create.Name, instance.Status.NodeName)
	case apierrors.IsAlreadyExists(err): // the cache will show it
	default:
		r.Recorder.Eventf(instance, corev1.EventTypeWarning, ReasonFailedCreate, "Error creating a Migration: %v", err)
		return fmt.Errorf("create migration: %w", err)
	}
	return nil
}
