package migrationcontroller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/written"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// MigrationsByVMI is the cache's index of migrations by the name of their VMI.
const MigrationsByVMI = "vmi-name"

// Reconciler reads migrations, policies, VMIs, pods, nodes and claims from Client's cache, and namespaces and VMs live.
// It writes migrations, their pods and claims, of VMs the claims that they name, and of VMIs status.migrationState,
// status.activePods and the label kubevirt.io/migrationTargetNodeName.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache, for the few decisions that must not rest on a stale one.
	Live     client.Reader
	Recorder record.EventRecorder
	Config   func() config.Config
	// Image and ImagePullPolicy are virt-launcher's.
	Image           string
	ImagePullPolicy corev1.PullPolicy
	Now             func() time.Time
	// Created are the pods that were created for VMIs, by the VMI's UID. VMIs' reconciler shares it.
	Created *written.Creations
	// FenceAfter has the value of the VMI reconciler's FenceAfter.
	FenceAfter time.Duration

	writes *frame.Writes
}

// SetupWithManager registers the reconciler and its index; the VMI reconciler's are expected.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	err := frame.Index(ctx, mgr.GetFieldIndexer(), &v1.VirtualMachineInstanceMigration{}, MigrationsByVMI,
		"migrations by VMI",
		func(migration *v1.VirtualMachineInstanceMigration) []string { return []string{migration.Spec.VMIName} })
	if err != nil {
		return err
	}
	// Policies are there when the first migration asks for them.
	if _, err := mgr.GetCache().
		GetInformer(ctx, &v1alpha1.MigrationPolicy{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("follow migration policies: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstancemigration").
		For(&v1.VirtualMachineInstanceMigration{}).
		Watches(&v1.VirtualMachineInstance{},
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
				return r.migrationsOf(ctx, o.GetNamespace(), o.GetName())
			})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.migrationOf)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.towards), builder.WithPredicates(answers)).
		// One at a time, so that the limits hold.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(&frame.Frame[*v1.VirtualMachineInstanceMigration, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
}

// migrationsOf returns the migrations of a VMI that are not over.
func (r *Reconciler) migrationsOf(ctx context.Context, namespace, name string) []reconcile.Request {
	var migrations v1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &migrations, client.InNamespace(namespace),
		client.MatchingFields{MigrationsByVMI: name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list migrations by VMI", "vmi", name)
		return nil
	}
	return frame.Requests(migrations.Items, func(m *v1.VirtualMachineInstanceMigration) bool {
		return !m.IsFinal() || m.DeletionTimestamp != nil || len(m.Finalizers) > 0
	})
}

// siblings returns all migrations of a migration's VMI.
func (r *Reconciler) siblings(
	ctx context.Context, migration *v1.VirtualMachineInstanceMigration,
) ([]*v1.VirtualMachineInstanceMigration, error) {
	var list v1.VirtualMachineInstanceMigrationList
	err := r.Client.List(ctx, &list, client.InNamespace(migration.Namespace),
		client.MatchingFields{MigrationsByVMI: migration.Spec.VMIName})
	if err != nil {
		return nil, fmt.Errorf("list migrations by VMI: %w", err)
	}
	out := make([]*v1.VirtualMachineInstanceMigration, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// migrationOf returns the migration that a launcher pod was made for.
func (r *Reconciler) migrationOf(ctx context.Context, pod client.Object) []reconcile.Request {
	uid := pod.GetLabels()[v1.MigrationJobLabel]
	owner := metav1.GetControllerOfNoCopy(pod)
	if uid != "" && owner != nil && owner.Kind == "Pod" { // an attachment pod
		var launcher corev1.Pod
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name},
			&launcher); err != nil {
			return nil // gone, and the migration hears of that
		}
		owner = metav1.GetControllerOfNoCopy(&launcher)
	}
	if uid == "" || owner == nil {
		return nil
	}
	return r.migrationsOf(ctx, pod.GetNamespace(), owner.Name)
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, migration *v1.VirtualMachineInstanceMigration) (View, error) {
	view, err := r.lookAround(ctx, migration)
	if err == nil && view.VMI != nil {
		err = r.lookAtFacts(ctx, &view)
	}
	return view, err
}

// lookAround gathers all but what pods to be created depend on.
func (r *Reconciler) lookAround(ctx context.Context, migration *v1.VirtualMachineInstanceMigration) (View, error) {
	view := View{Migration: migration, Now: r.Now()}
	if migration.IsFinal() {
		var err error
		if view.Siblings, err = r.siblings(ctx, migration); err != nil {
			return view, err
		}
	}
	key := types.NamespacedName{Namespace: migration.Namespace, Name: migration.Spec.VMIName}
	var instance v1.VirtualMachineInstance
	switch err := r.Client.Get(ctx, key, &instance); {
	case apierrors.IsNotFound(err):
		r.writes.Forget(&instance, key)
		// It may have been made a moment ago, and the migration with it.
		if err := r.Live.Get(ctx, key, &instance); err == nil {
			return view, frame.ErrStale
		} else if !apierrors.IsNotFound(err) {
			return view, fmt.Errorf("get VirtualMachineInstance %s: %w", key.Name, err)
		}
		// A failed one has a pod to remove, but the VMI's owner reference does that.
		return view, r.lookAtDisks(ctx, &view)
	case err != nil:
		return view, fmt.Errorf("get VirtualMachineInstance %s: %w", key.Name, err)
	}
	if r.writes.Stale(&instance) {
		return view, frame.ErrStale
	}
	view.VMI = &instance
	pods, err := vmicontroller.Pods(ctx, r.Client, &instance)
	if err != nil {
		return view, err
	}
	view.Created, _ = r.Created.Of(instance.UID)
	for _, pod := range pods {
		if life.PodEnded(pod) {
			view.Ended = append(view.Ended, pod)
		}
		if isTarget(migration, &instance, view.Created, pod) {
			view.Pod = pod
		}
	}
	if guestPod := life.GuestPod(&instance, pods); guestPod != nil && guestPod != view.Pod {
		view.SourcePod = guestPod.Name
	}
	if view.Pod == nil && migration.IsRunning() {
		// That it is gone is grave: do not believe the cache, which may be stale.
		if err := r.lookAtTargetPod(ctx, &view); err != nil {
			return view, err
		}
	}
	if err := r.lookAtState(ctx, &view); err != nil {
		return view, err
	}
	if err := r.lookAtTarget(ctx, &view); err != nil {
		return view, err
	}
	if err := r.lookAtDisks(ctx, &view); err != nil {
		return view, err
	}
	if view.Pod != nil {
		if view.Attachments, err = vmicontroller.Attachments(ctx, r.Client, migration.Namespace, view.Pod.UID); err !=
			nil {
			return view, err
		}
	}
	switch {
	case migration.IsFinal():
	case !migration.IsRunning():
		view.Wait, err = r.wait(ctx, migration, &instance)
	case state(view) == nil && view.Pod != nil && view.Pod.Spec.NodeName != "":
		view.Cluster = r.Config().Migrations
		view.Policy, err = r.policy(ctx, &instance)
	}
	return view, err
}

// policy returns the migration policy that applies to a VMI, nil when none does.
func (r *Reconciler) policy(
	ctx context.Context, instance *v1.VirtualMachineInstance,
) (*v1alpha1.MigrationPolicy, error) {
	var policies v1alpha1.MigrationPolicyList
	if err := r.Client.List(ctx, &policies); err != nil {
		return nil, fmt.Errorf("list migration policies: %w", err)
	}
	var namespace corev1.Namespace
	if slices.ContainsFunc(policies.Items, func(p v1alpha1.MigrationPolicy) bool {
		return p.Spec.Selectors != nil && len(p.Spec.Selectors.NamespaceSelector) > 0
	}) {
		// Namespaces are asked for so seldom that they are not kept.
		if err := r.Live.Get(ctx, types.NamespacedName{Name: instance.Namespace}, &namespace); err != nil {
			return nil, fmt.Errorf("get namespace %s: %w", instance.Namespace, err)
		}
	}
	return surface.MatchPolicy(policies.Items, instance.Labels, namespace.Labels), nil
}

// apply does what the step says: the pod and the VMI first, then the migration.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	migration := view.Migration
	if step.AddFinalizer {
		return r.writes.Change(ctx, migration, func() {
			controllerutil.AddFinalizer(migration, v1.VirtualMachineInstanceMigrationFinalizer)
			if volumemigration.WithDisks(migration) {
				controllerutil.AddFinalizer(migration, volumemigration.WithDisksFinalizer)
			}
			metav1.SetMetaDataLabel(&migration.ObjectMeta, v1.MigrationSelectorLabel,
				names.LabelValue(migration.Spec.VMIName))
		})
	}
	if step.CreatePod {
		if err := r.createPod(ctx, view, step); err != nil {
			return err
		}
	}
	if err := r.applyAttachments(ctx, view, step); err != nil {
		return err
	}
	if err := r.show(ctx, view, step); err != nil {
		return err
	}
	if step.VMIStatus != nil {
		if err := frame.PatchStatus(ctx, r.writes, view.VMI, &view.VMI.Status, *step.VMIStatus); err != nil {
			return fmt.Errorf("VirtualMachineInstance %s: %w", view.VMI.Name, err)
		}
	}
	if step.DeletePod {
		if err := r.deletePod(ctx, view); err != nil {
			return err
		}
	}
	if step.DeleteState != nil {
		if err := r.deleteState(ctx, view, step.DeleteState); err != nil {
			return err
		}
	}
	if err := r.applyDisks(ctx, view, step); err != nil {
		return err
	}
	if err := frame.PatchStatus(ctx, r.writes, migration, &migration.Status, step.Status); err != nil {
		return err
	}
	for _, event := range step.Events {
		r.Recorder.Event(migration, event.Type, event.Reason, event.Message)
	}
	if err := r.prune(ctx, migration, step); err != nil {
		return err
	}
	if step.RemoveFinalizer {
		if err := r.writes.RemoveFinalizer(ctx, migration, v1.VirtualMachineInstanceMigrationFinalizer); err != nil {
			return err
		}
	}
	if step.Release {
		return r.writes.RemoveFinalizer(ctx, migration, volumemigration.WithDisksFinalizer)
	}
	return step.Failed
}

// show sets the label by which the target node's virt-handler finds the VMI.
func (r *Reconciler) show(ctx context.Context, view View, step *Step) error {
	if step.TargetLabel == nil {
		return nil
	}
	err := r.writes.Change(ctx, view.VMI, func() {
		if *step.TargetLabel == "" {
			delete(view.VMI.Labels, v1.MigrationTargetNodeNameLabel)
		} else {
			metav1.SetMetaDataLabel(&view.VMI.ObjectMeta, v1.MigrationTargetNodeNameLabel, *step.TargetLabel)
		}
	})
	if err != nil {
		return fmt.Errorf("label the VirtualMachineInstance: %w", err)
	}
	return nil
}
