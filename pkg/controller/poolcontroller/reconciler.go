package poolcontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/cdi"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/pools"
)

const (
	// vmsByController has VMs by the UID of the object that controls them.
	vmsByController = "controller-uid"

	// RevisionLabel is on the ControllerRevisions of pools and has the pool's UID; the cache holds no others.
	RevisionLabel = "virtkit.io/pool-uid"
)

// Reconciler reads pools, VMs, VMIs and ControllerRevisions from Client's cache. It creates, changes and deletes VMs
// and revisions, asks for restarts in the VMs' status, writes one label of VMIs, the owners of claims and DataVolumes
// that are to outlive their VM, and the pools' status.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache.
	Live     client.Reader
	Recorder record.EventRecorder
	Now      func() time.Time
	// Shuffle is rand.Shuffle.
	Shuffle func(n int, swap func(i, j int))
	// CDI reads and writes DataVolumes, if the cluster has them.
	CDI *cdi.Access

	writes *frame.Writes
}

// SetupWithManager registers the reconciler and its index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	err := frame.Index(ctx, mgr.GetFieldIndexer(), &v1.VirtualMachine{}, vmsByController, "VMs by what controls them",
		func(vm *v1.VirtualMachine) []string {
			if owner := metav1.GetControllerOfNoCopy(vm); owner != nil {
				return []string{string(owner.UID)}
			}
			return nil
		})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachinepool").
		For(&v1beta1.VirtualMachinePool{}).
		Owns(&v1.VirtualMachine{}).
		Owns(&appsv1.ControllerRevision{}).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.poolOf),
			builder.WithPredicates(concerns)).
		Complete(&frame.Frame[*v1beta1.VirtualMachinePool, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
}

// concerns lets through what of a pool's VMIs decides about updates.
var concerns = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return inPool(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return inPool(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1.VirtualMachineInstance), e.ObjectNew.(*v1.VirtualMachineInstance)
		return inPool(after) &&
			(before.Status.Phase != after.Status.Phase ||
				(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
				!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
				!equality.Semantic.DeepEqual(conditions.Find(before.Status.Conditions, v1.VirtualMachineInstanceReady),
					conditions.Find(after.Status.Conditions, v1.VirtualMachineInstanceReady)))
	},
}

// inPool reports a VMI that a pool's VM made.
func inPool(instance client.Object) bool {
	_, is := instance.GetLabels()[v1.VirtualMachinePoolRevisionName]
	return is
}

// poolOf returns the pool whose VM a VMI belongs to.
func (r *Reconciler) poolOf(ctx context.Context, instance client.Object) []reconcile.Request {
	var machine v1.VirtualMachine
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(instance), &machine); err != nil {
		return nil // gone, of which the pool hears as well
	}
	owner := metav1.GetControllerOfNoCopy(&machine)
	if owner == nil || owner.Kind != pools.Kind.Kind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: machine.Namespace, Name: owner.Name}}}
}

// look gathers what Next wants to know. What is listed is not changed, but copied first.
func (r *Reconciler) look(ctx context.Context, p *v1beta1.VirtualMachinePool) (View, error) {
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	if err != nil {
		return View{}, reconcile.TerminalError(fmt.Errorf("spec.selector: %w", err)) // Admission refuses it.
	}
	if p.Spec.VirtualMachineTemplate == nil || p.Spec.VirtualMachineTemplate.Spec.Template == nil {
		return View{}, frame.ErrNothing // So it does this.
	}
	view := View{
		Pool: p, Selector: selector, Now: r.Now(), Shuffle: r.Shuffle,
		Revisions: map[string]*pools.Template{}, Stored: map[string]*appsv1.ControllerRevision{},
	}
	var machines v1.VirtualMachineList
	err = r.Client.List(ctx, &machines, client.InNamespace(p.Namespace),
		client.MatchingFields{vmsByController: string(p.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return view, fmt.Errorf("list VMs: %w", err)
	}
	shown, stale := map[types.UID]bool{}, false
	for i := range machines.Items {
		m := Machine{VM: &machines.Items[i], Ordinal: -1}
		if ordinal, ok := pools.Ordinal(p.Name, m.VM.Name); ok {
			m.Ordinal = ordinal
		}
		if m.VMI, err = r.instance(ctx, m.VM); err != nil {
			return view, err
		}
		shown[m.VM.UID] = true
		stale = stale || r.writes.Stale(m.VM) || r.writes.Deleted(m.VM) || m.VMI != nil && r.writes.Stale(m.VMI)
		view.Machines = append(view.Machines, m)
	}
	slices.SortFunc(view.Machines, byOrdinal)
	counts, err := r.writes.CountsStale(ctx, r.Live, p, shown, r.Now(), &v1.VirtualMachine{})
	if err != nil {
		return view, err
	}
	if counts || stale {
		return view, frame.ErrStale
	}
	if preserves(view) {
		for i := range view.Machines {
			if view.Machines[i].Disks, err = r.disks(ctx, view.Machines[i].VM); err != nil {
				return view, err
			}
		}
	}
	if lacks(view) {
		if view.Taken, err = r.taken(ctx, p.Namespace); err != nil {
			return view, err
		}
	}
	return view, r.revisions(ctx, &view)
}

// disks returns the DataVolumes and claims that a VM controls.
func (r *Reconciler) disks(ctx context.Context, machine *v1.VirtualMachine) ([]client.Object, error) {
	var disks []client.Object
	for _, name := range diskNames(machine) {
		dv, err := r.CDI.Get(ctx, machine.Namespace, name)
		if err != nil {
			return nil, err
		}
		if dv != nil && metav1.IsControlledBy(dv, machine) {
			disks = append(disks, dv)
		}
		claim, err := frame.Found(ctx, r.Client, machine.Namespace, name, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return nil, err
		}
		if claim != nil && metav1.IsControlledBy(claim, machine) {
			disks = append(disks, claim)
		}
	}
	return disks, nil
}

// diskNames returns the names of the DataVolumes and claims that a VM makes or uses.
func diskNames(machine *v1.VirtualMachine) []string {
	var names []string
	for i := range machine.Spec.DataVolumeTemplates {
		names = append(names, machine.Spec.DataVolumeTemplates[i].Name)
	}
	for i := range machine.Spec.Template.Spec.Volumes {
		if name := claims.Name(&machine.Spec.Template.Spec.Volumes[i]); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// taken returns the names of a namespace's VMs.
func (r *Reconciler) taken(ctx context.Context, namespace string) (map[string]bool, error) {
	var machines v1.VirtualMachineList
	if err := r.Client.List(ctx, &machines, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list VMs of the namespace: %w", err)
	}
	out := make(map[string]bool, len(machines.Items))
	for i := range machines.Items {
		out[machines.Items[i].Name] = true
	}
	return out, nil
}

// instance returns a VM's VMI, nil when it has none.
func (r *Reconciler) instance(ctx context.Context, machine *v1.VirtualMachine) (*v1.VirtualMachineInstance, error) {
	var found v1.VirtualMachineInstance
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(machine), &found); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get VMI: %w", err)
	}
	if !metav1.IsControlledBy(&found, machine) {
		return nil, nil
	}
	return &found, nil
}

// revisions reads the pool's into the view. One that cannot be read is as good as none.
func (r *Reconciler) revisions(ctx context.Context, view *View) error {
	var list appsv1.ControllerRevisionList
	err := r.Client.List(ctx, &list, client.InNamespace(view.Pool.Namespace),
		client.MatchingLabels{RevisionLabel: string(view.Pool.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list ControllerRevisions: %w", err)
	}
	for i := range list.Items {
		template := &pools.Template{}
		revision := &list.Items[i]
		if !metav1.IsControlledBy(revision, view.Pool) || revision.DeletionTimestamp != nil ||
			r.writes.Deleted(revision) {
			continue
		}
		if err := json.Unmarshal(revision.Data.Raw, template); err != nil || template.VirtualMachineTemplate == nil {
			ctrl.LoggerFrom(ctx).Info("a ControllerRevision cannot be read", "revision", revision.Name, "err", err)
			template = nil
		}
		view.Revisions[revision.Name], view.Stored[revision.Name] = template, revision
	}
	return nil
}

// writeStatus writes the status when it changed, and records an event of a pause.
func (r *Reconciler) writeStatus(
	ctx context.Context, p *v1beta1.VirtualMachinePool, status v1beta1.VirtualMachinePoolStatus,
) error {
	return frame.PatchStatusRecorded(ctx, r.writes, r.Recorder, p, &p.Status, status, paused, [2]frame.Event{
		{Reason: ReasonPaused, Message: "Pool is paused"}, {Reason: ReasonResumed, Message: "Pool is unpaused"},
	})
}

func paused(s *v1beta1.VirtualMachinePoolStatus) bool {
	return conditions.True(s.Conditions, v1beta1.VirtualMachinePoolReplicaPaused)
}
