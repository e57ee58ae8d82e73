package resizecontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Reconciler reads VMIs, migrations and (from Live) launcher pods of VMIs that change their size. It writes the
// resources of these pods, two conditions of the VMIs, and migrations. It needs the indexes of packages vmi and
// migration.
type Reconciler struct {
	Client   client.Client
	Live     client.Reader
	Recorder record.EventRecorder
	Config   func() config.Config
	Now      func() time.Time

	writes *frame.Writes
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	return ctrl.NewControllerManagedBy(mgr).
		Named("resize").
		For(&v1.VirtualMachineInstance{}, builder.WithPredicates(pending)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod), builder.WithPredicates(changes)).
		Watches(&v1.VirtualMachineInstanceMigration{}, handler.EnqueueRequestsFromMapFunc(r.ofMigration),
			builder.WithPredicates(ends)).
		Complete(&frame.Frame[*v1.VirtualMachineInstance, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
}

// pending lets VMIs through for which there may be something to do: few, for a short time.
var pending = predicate.NewPredicateFuncs(func(object client.Object) bool {
	return Pending(object.(*v1.VirtualMachineInstance))
})

var changes = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

var ends = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectNew.(*v1.VirtualMachineInstanceMigration).IsFinal()
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func (r *Reconciler) ofPod(ctx context.Context, pod client.Object) []reconcile.Request {
	owner := life.InstanceOf(pod)
	if owner == nil {
		return nil
	}
	return r.ifPending(ctx, types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name})
}

func (r *Reconciler) ofMigration(ctx context.Context, m client.Object) []reconcile.Request {
	return r.ifPending(ctx,
		types.NamespacedName{Namespace: m.GetNamespace(), Name: m.(*v1.VirtualMachineInstanceMigration).Spec.VMIName})
}

func (r *Reconciler) ifPending(ctx context.Context, key types.NamespacedName) []reconcile.Request {
	var instance v1.VirtualMachineInstance
	// Not copied, since most are none of ours and none is changed.
	if err := r.Client.Get(ctx, key, &instance, client.UnsafeDisableDeepCopy); err != nil || !Pending(&instance) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, instance *v1.VirtualMachineInstance) (View, error) {
	if !Pending(instance) {
		return View{}, frame.ErrNothing
	}
	view := View{VMI: instance, Now: r.Now()}
	pods, err := vmicontroller.Pods(ctx, r.Client, instance)
	if err != nil {
		return view, err
	}
	if cached := life.GuestPod(instance, pods); cached != nil {
		// The cache does not keep what a pod has.
		var pod corev1.Pod
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), &pod); err != nil {
			return view, fmt.Errorf("get pod %s: %w", cached.Name, err)
		}
		if pod.UID == cached.UID && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			view.Pod = &pod
		}
	}
	if view.Pod == nil {
		return view, nil
	}
	limits, err := vmicontroller.ReadLimits(ctx, r.Live, r.Config(), instance.Namespace)
	if err != nil {
		return view, err
	}
	view.Want, view.Fit = vmicontroller.Sizes(instance, r.Config(), limits)
	var migrations v1.VirtualMachineInstanceMigrationList
	err = r.Client.List(ctx, &migrations, client.InNamespace(instance.Namespace),
		client.MatchingFields{migrationcontroller.MigrationsByVMI: instance.Name})
	if err != nil {
		return view, fmt.Errorf("list migrations: %w", err)
	}
	for i := range migrations.Items {
		view.Migrations = append(view.Migrations, &migrations.Items[i])
	}
	return view, nil
}

// apply does what the step says. The status comes last: resized changes it by what the API server answers. Where it is
// not written, the next pass sees in the pod what was asked for.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if step.Resize != nil {
		if err := step.resized(view, r.resize(ctx, view.Pod, *step.Resize)); err != nil {
			return err
		}
	}
	if step.Migrate != "" {
		if err := migrationcontroller.CreateUpdate(ctx, r.writes, r.Recorder, view.VMI, step.Migrate); err != nil {
			return err
		}
	}
	return frame.PatchStatus(ctx, r.writes, view.VMI, &view.VMI.Status, step.Status)
}

// resize asks for other CPUs and memory of the pod's container, and nothing else.
func (r *Reconciler) resize(ctx context.Context, pod *corev1.Pod, to corev1.ResourceRequirements) error {
	type container struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"spec":     map[string]any{"containers": []container{{names.ContainerCompute, to}}},
	})
	if err != nil {
		return fmt.Errorf("encode the pod's resources: %w", err)
	}
	// Not by r.writes: the cache does not have what is written, and the pod is read past it.
	return r.Client.SubResource("resize").
		Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
}
