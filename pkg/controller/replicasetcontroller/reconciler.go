package replicasetcontroller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

const (
	// vmisByController has VMIs by the UID of the object that controls them, and orphan those that nothing does.
	vmisByController = "controller-uid"
	orphan           = "none"
)

// Reconciler reads sets and VMIs from Client's cache; it creates, deletes, adopts and releases VMIs and writes the
// sets' status.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache.
	Live     client.Reader
	Recorder record.EventRecorder
	Now      func() time.Time

	writes *frame.Writes
}

// SetupWithManager registers the reconciler and its index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	err := frame.Index(ctx, mgr.GetFieldIndexer(), &v1.VirtualMachineInstance{}, vmisByController,
		"VMIs by what controls them", func(vmi *v1.VirtualMachineInstance) []string {
			if owner := metav1.GetControllerOfNoCopy(vmi); owner != nil {
				return []string{string(owner.UID)}
			}
			return []string{orphan}
		})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstancereplicaset").
		For(&v1.VirtualMachineInstanceReplicaSet{}).
		Owns(&v1.VirtualMachineInstance{}).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.adopters)).
		Complete(&frame.Frame[*v1.VirtualMachineInstanceReplicaSet, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
}

// adopters returns the sets that select a VMI which nobody owns.
func (r *Reconciler) adopters(ctx context.Context, instance client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(instance) != nil || instance.GetDeletionTimestamp() != nil ||
		len(instance.GetLabels()) == 0 {
		return nil
	}
	var sets v1.VirtualMachineInstanceReplicaSetList
	if err := r.Client.List(ctx, &sets, client.InNamespace(instance.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list replica sets")
		return nil
	}
	return frame.Requests(sets.Items, func(set *v1.VirtualMachineInstanceReplicaSet) bool {
		selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
		return err == nil && !selector.Empty() && selector.Matches(labels.Set(instance.GetLabels()))
	})
}

// look sorts the VMIs of the set's namespace that might be its own.
func (r *Reconciler) look(ctx context.Context, set *v1.VirtualMachineInstanceReplicaSet) (View, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return View{}, reconcile.TerminalError(fmt.Errorf("spec.selector: %w", err)) // Admission refuses it.
	}
	if selector.Empty() || set.Spec.Template == nil {
		return View{}, frame.ErrNothing // Admission refuses this, too.
	}
	var vmis []*v1.VirtualMachineInstance
	for _, controller := range []string{string(set.UID), orphan} {
		var list v1.VirtualMachineInstanceList
		// What is listed is not changed, but copied first.
		err := r.Client.List(ctx, &list, client.InNamespace(set.Namespace),
			client.MatchingFields{vmisByController: controller}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return View{}, fmt.Errorf("list VMIs: %w", err)
		}
		for i := range list.Items {
			if r.writes.Stale(&list.Items[i]) || r.writes.Deleted(&list.Items[i]) {
				return View{}, frame.ErrStale
			}
			vmis = append(vmis, &list.Items[i])
		}
	}
	claimed, shown := Claim(set, selector, vmis), map[types.UID]bool{}
	for _, instance := range claimed.Mine {
		shown[instance.UID] = true
	}
	stale, err := r.writes.CountsStale(ctx, r.Live, set, shown, r.Now(), &v1.VirtualMachineInstance{})
	if err != nil {
		return View{}, err
	}
	if stale {
		return View{}, frame.ErrStale
	}
	if len(claimed.Adopt) > 0 {
		// The garbage collector must not find that the owner is gone.
		var fresh v1.VirtualMachineInstanceReplicaSet
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(set), &fresh); err != nil {
			return View{}, fmt.Errorf("get replica set: %w", err)
		}
		if fresh.UID != set.UID || fresh.DeletionTimestamp != nil {
			claimed.Adopt, claimed.Release = nil, nil
		}
	}
	return View{
		Set: set, Selector: selector, Now: r.Now(),
		VMIs: slices.Concat(claimed.Mine, claimed.Adopt), Adopt: claimed.Adopt, Release: claimed.Release,
	}, nil
}

// apply does what the step says, owner references first, and writes the result.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if err := r.claim(ctx, view.Set, step); err != nil {
		return err
	}
	out := r.act(ctx, view.Set, *step)
	if err := r.writeStatus(ctx, view.Set, out.status(view, r.writes.Deleted, r.Now())); err != nil {
		return err
	}
	return out.err
}

// claim writes owner references.
func (r *Reconciler) claim(ctx context.Context, set *v1.VirtualMachineInstanceReplicaSet, step *Step) error {
	for _, instance := range step.Adopt {
		after := instance.DeepCopy()
		after.OwnerReferences = append(after.OwnerReferences,
			*metav1.NewControllerRef(set, v1.VirtualMachineInstanceReplicaSetGroupVersionKind))
		if err := r.writes.Patch(ctx, instance, after); err != nil {
			return fmt.Errorf("adopt VMI %s: %w", instance.Name, err)
		}
	}
	for _, instance := range step.Release {
		after := instance.DeepCopy()
		after.OwnerReferences = slices.DeleteFunc(after.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.UID == set.UID
		})
		if err := r.writes.Patch(ctx, instance, after); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("release VMI %s: %w", instance.Name, err)
		}
	}
	return nil
}

// act makes and deletes what a step says.
func (r *Reconciler) act(ctx context.Context, set *v1.VirtualMachineInstanceReplicaSet, step Step) outcome {
	var out outcome
	results := make([]*v1.VirtualMachineInstance, step.Create)
	err := frame.SlowStart(step.Create, func(i int) error {
		instance := Instance(set)
		if err := r.writes.CreateCounted(ctx, set, instance, r.Now()); err != nil {
			return err
		}
		results[i] = instance
		r.Recorder.Eventf(set, corev1.EventTypeNormal, vmicontroller.ReasonSuccessfulCreate,
			"Started the virtual machine by creating the new virtual machine instance %s", instance.Name)
		return nil
	})
	if !out.created(results, err) {
		return out
	}
	if err != nil {
		r.Recorder.Eventf(set, corev1.EventTypeWarning, ReasonFailedCreate,
			"Error creating virtual machine instance: %v", err)
	}
	out.deleted(r.remove(ctx, set, slices.Concat(step.Delete, step.Replace)))
	return out
}

// remove deletes VMIs.
func (r *Reconciler) remove(
	ctx context.Context, set *v1.VirtualMachineInstanceReplicaSet, vmis []*v1.VirtualMachineInstance,
) error {
	return frame.SlowStart(len(vmis), func(i int) error {
		instance := vmis[i]
		deleted, err := r.writes.Delete(ctx, instance)
		if err != nil {
			r.Recorder.Eventf(set, corev1.EventTypeWarning, vmicontroller.ReasonFailedDelete,
				"Error deleting virtual machine instance %s: %v", instance.Name, err)
			return fmt.Errorf("delete VMI %s: %w", instance.Name, err)
		}
		if deleted {
			r.Recorder.Eventf(set, corev1.EventTypeNormal, vmicontroller.ReasonSuccessfulDelete,
				"Stopped the virtual machine by deleting the virtual machine instance %s", instance.Name)
		}
		return nil
	})
}

// writeStatus writes the status when it changed, and reports a pause.
func (r *Reconciler) writeStatus(
	ctx context.Context, set *v1.VirtualMachineInstanceReplicaSet, status v1.VirtualMachineInstanceReplicaSetStatus,
) error {
	return frame.PatchStatusRecorded(ctx, r.writes, r.Recorder, set, &set.Status, status, paused, [2]frame.Event{
		{Reason: eventPaused, Message: "Paused"}, {Reason: eventResumed, Message: "Resumed"},
	})
}

func paused(s *v1.VirtualMachineInstanceReplicaSetStatus) bool {
	return conditions.True(s.Conditions, v1.VirtualMachineInstanceReplicaSetReplicaPaused)
}
