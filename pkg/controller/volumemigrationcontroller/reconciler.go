package volumemigrationcontroller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/controller/workloadupdatecontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Reconciler reads VMIs, claims, migrations and the KubeVirt resource from Client's cache, DataVolumes and
// VolumeSnapshots where there are any, and (from Live) the pods that use the new claims, and all that may use those
// which a guest has left. It writes of VMIs status.migratedVolumes and two conditions, of claims an annotation, and
// migrations; it deletes claims and DataVolumes that a guest has left. It needs the indexes of packages vmicontroller
// and migrationcontroller.
type Reconciler struct {
	Client   client.Client
	Live     client.Reader
	Recorder record.EventRecorder
	Now      func() time.Time
	CDI      DataVolumes
	// VolumeSnapshots may be of the claims that a guest has left.
	VolumeSnapshots Kind

	writes *frame.Writes
	// seen has the last look at the claims that a guest has left, by the VMI's name: what is forgotten with the process
	// is looked at again.
	seen sync.Map
}

// Kind is a kind that the cluster may lack (pkg/controller/optional).
type Kind interface {
	// Settled reports whether it is known whether the cluster has it.
	Settled(ctx context.Context) (bool, error)
	List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error
}

// DataVolumes are CDI's (pkg/controller/cdi).
type DataVolumes interface {
	Kind
	Installed() bool
	Get(ctx context.Context, namespace, name string) (*cdiv1.DataVolume, error)
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	return ctrl.NewControllerManagedBy(mgr).
		Named("volumemigration").
		For(&v1.VirtualMachineInstance{}, builder.WithPredicates(pending)).
		Watches(&v1.VirtualMachineInstanceMigration{}, handler.EnqueueRequestsFromMapFunc(r.ofMigration),
			builder.WithPredicates(ends)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim)).
		Complete(&frame.Frame[*v1.VirtualMachineInstance, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply, Gone: r.forget,
		})
}

// pending lets VMIs through for which there may be something to do: few, for a short time.
var pending = predicate.NewPredicateFuncs(func(object client.Object) bool {
	return concerned(object.(*v1.VirtualMachineInstance))
})

// concerned reports a VMI that is copied, or whose condition says so, or which has left claims.
func concerned(vmi *v1.VirtualMachineInstance) bool {
	return volumemigration.Pending(vmi) || volumemigration.Unsaid(vmi) || leaving(vmi)
}

var ends = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectNew.(*v1.VirtualMachineInstanceMigration).IsFinal()
	},
}

func (r *Reconciler) ofMigration(ctx context.Context, m client.Object) []reconcile.Request {
	key := migrations.Instance(m.(*v1.VirtualMachineInstanceMigration))
	var vmi v1.VirtualMachineInstance
	// Not copied, since most are none of ours and none is changed.
	if err := r.Client.Get(ctx, key, &vmi, client.UnsafeDisableDeepCopy); err != nil ||
		!volumemigration.Pending(&vmi) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// ofClaim returns the VMIs whose disks are to be copied to a claim, which was made or bound.
func (r *Reconciler) ofClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	var vmis v1.VirtualMachineInstanceList
	err := r.Client.List(ctx, &vmis, client.InNamespace(claim.GetNamespace()), client.UnsafeDisableDeepCopy,
		client.MatchingFields{vmicontroller.VMIsByClaim: claim.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMIs by claim", "claim", claim.GetName())
		return nil
	}
	return frame.Requests(vmis.Items, volumemigration.Pending)
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, vmi *v1.VirtualMachineInstance) (View, error) {
	if !concerned(vmi) {
		return View{}, frame.ErrNothing
	}
	view := View{VMI: vmi, Now: r.Now(), Users: map[string]string{}}
	var err error
	if leaving(vmi) {
		return view, r.lookAtLeft(ctx, &view)
	}
	if view.Claims, err = vmicontroller.Claims(ctx, r.Client, vmi); err != nil {
		return view, err
	}
	var list v1.VirtualMachineInstanceMigrationList
	err = r.Client.List(ctx, &list, client.InNamespace(vmi.Namespace),
		client.MatchingFields{migrationcontroller.MigrationsByVMI: vmi.Name})
	if err != nil {
		return view, fmt.Errorf("list migrations: %w", err)
	}
	for i := range list.Items {
		view.Migrations = append(view.Migrations, &list.Items[i])
	}
	var kv v1.KubeVirt
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: names.Namespace, Name: names.KubeVirt}, &kv)
	if client.IgnoreNotFound(err) != nil {
		return view, fmt.Errorf("get the KubeVirt resource: %w", err)
	}
	view.Settled = err == nil && workloadupdatecontroller.Settled(&kv)
	if volumemigration.Described(vmi) {
		return view, nil // asked when it was described; from then on the claim is the VMI's
	}
	if err := r.lookAtSources(ctx, &view); err != nil {
		return view, err
	}
	if err := r.lookAtDataVolumes(ctx, &view); err != nil {
		return view, err
	}
	return view, r.lookAtUsers(ctx, &view)
}

// lookAtDataVolumes finds those that fill the new claims.
func (r *Reconciler) lookAtDataVolumes(ctx context.Context, view *View) error {
	if !r.CDI.Installed() {
		return nil // Their maker is gone; the claims stay as they are.
	}
	view.DataVolumes = map[string]*cdiv1.DataVolume{}
	for _, m := range volumemigration.Moves(view.VMI) {
		if claim := view.Claims[m.To]; claim == nil || !claims.Owned(claim) {
			continue
		}
		dv, err := r.CDI.Get(ctx, view.VMI.Namespace, m.To)
		if err != nil {
			return err
		}
		view.DataVolumes[m.To] = dv
	}
	return nil
}

// lookAtUsers finds other pods that use the new claims. The cache does not keep the volumes of pods.
func (r *Reconciler) lookAtUsers(ctx context.Context, view *View) error {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(view.VMI.Namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for _, m := range volumemigration.Moves(view.VMI) {
		for i := range pods.Items {
			if pod := &pods.Items[i]; claims.UsedBy(pod, m.To) && !metav1.IsControlledBy(pod, view.VMI) {
				view.Users[m.To] = pod.Name
			}
		}
	}
	return nil
}

// forget drops what is remembered of a VMI that is gone.
func (r *Reconciler) forget(_ context.Context, key types.NamespacedName) error {
	r.seen.Delete(key)
	return nil
}

// apply does what the step says. The status comes before what rests on it, since the guest's node copies what it says;
// and after the marks on claims, which it rests on.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if err := r.mark(ctx, view.VMI, step.Mark); err != nil {
		return err
	}
	r.remember(view.VMI, step.Seen)
	if err := frame.PatchStatus(ctx, r.writes, view.VMI, &view.VMI.Status, step.Status); err != nil {
		return err
	}
	for _, object := range step.Delete {
		kind := kindClaim
		if _, filled := object.(*cdiv1.DataVolume); filled {
			kind = kindDataVolume
		}
		deleted, err := r.writes.Delete(ctx, object)
		if err != nil {
			return fmt.Errorf("delete %s %s, which the guest has left: %w", kind, object.GetName(), err)
		}
		if deleted {
			r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, reasonClaimDeleted,
				"Deleted %s %s, whose disk is on another claim", kind, object.GetName())
		}
	}
	for _, e := range step.Events {
		r.Recorder.Event(view.VMI, e.kind, e.reason, e.message)
	}
	for _, m := range step.Cancel {
		deleted, err := r.writes.Delete(ctx, m)
		if err != nil {
			return fmt.Errorf("cancel migration %s: %w", m.Name, err)
		}
		if deleted {
			r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, migrationcontroller.ReasonSuccessfulDelete,
				"Cancelled Migration %s: the volumes were reverted", m.Name)
		}
	}
	if step.Migrate == "" {
		return step.Failed
	}
	return migrationcontroller.CreateUpdate(ctx, r.writes, r.Recorder, view.VMI, step.Migrate)
}
