package vmcontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	"github.com/virtkit/virtkit/pkg/controller/cdi"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/controller/volumesnapshots"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// reasonNotOwned is the Failure reason when the VM's name is taken by a VMI that is not its own.
const reasonNotOwned = names.ReasonNotOwned

// concurrency is the number of VMs that are worked on at once.
const concurrency = 16

// Reconciler reads VMs, VMIs, migrations, pods, claims, StorageClasses and DataVolumes from Client's cache, and writes
// VMIs (create, delete, adopt, size, hotplugged volumes), DataVolumes (create), and the status and finalizer of VMs. It
// needs the indexes of package vmicontroller.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache, where a create has just shown that the cache is stale.
	Live     client.Reader
	Recorder record.EventRecorder
	Config   func() config.Config
	Now      func() time.Time
	// CDI reads and writes DataVolumes, if the cluster has them.
	CDI *cdi.Access
	// Storage says which volumes can be snapshotted.
	Storage *volumesnapshots.Storage

	writes *frame.Writes
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	indexer, vm := mgr.GetFieldIndexer(), &v1.VirtualMachine{}
	err := errors.Join(
		frame.Index(ctx, indexer, vm, vmsByDataVolume, "VMs by DataVolume", dataVolumeNames),
		frame.Index(ctx, indexer, vm, vmsByClaim, "VMs by claim", claimsOf),
		frame.Index(ctx, indexer, &v1.VirtualMachineInstance{}, vmisByMAC, "VMIs by MAC address", sharedMACs),
		frame.Index(ctx, indexer, &v1.VirtualMachineInstance{}, vmisByIP, "VMIs by IP address", livingIPs),
	)
	if err != nil {
		return err
	}
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachine").
		For(&v1.VirtualMachine{}).
		// Not Owns: a VMI that is not owned yet, or is another's, concerns the VM of its name too.
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ownerName), builder.WithPredicates(podMatters)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.usersOf), builder.WithPredicates(
			claimPhaseChanged,
		)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.vmsOfClaim),
			builder.WithPredicates(claimClassChanged)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.vmsWithClaims), builder.WithPredicates(
			storageClassChanged,
		)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Build(&frame.Frame[*v1.VirtualMachine, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
	if err != nil {
		return err
	}
	r.CDI.Follow(built, r.usersOfDataVolume)
	r.Storage.Classes.Follow(built, r.vmsWithClaims)
	r.Storage.Profiles.Follow(built, r.vmsWithClaims)
	return nil
}

func sameName(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
}

// ownerName maps a launcher pod to the VM with the name of its VMI.
func ownerName(_ context.Context, pod client.Object) []reconcile.Request {
	return frame.RequestOf(pod.GetNamespace(), metav1.GetControllerOfNoCopy(pod))
}

func (r *Reconciler) usersOf(ctx context.Context, claim client.Object) []reconcile.Request {
	var vmis v1.VirtualMachineInstanceList
	err := r.Client.List(ctx, &vmis, client.InNamespace(claim.GetNamespace()),
		client.MatchingFields{vmicontroller.VMIsByClaim: claim.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMIs by claim", "claim", claim.GetName())
		return nil
	}
	return frame.Requests(vmis.Items, nil)
}

// podMatters lets through what of a pod a VM does not learn from its VMI: trouble with images, and the addresses that
// the pod has got.
var podMatters = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return imageTrouble(e.Object) != "" },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return imageTrouble(e.ObjectOld) != imageTrouble(e.ObjectNew) || networks(e.ObjectOld) != networks(e.ObjectNew)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func networks(obj client.Object) string { return obj.GetAnnotations()[network.AnnotationStatus] }

func imageTrouble(obj client.Object) string {
	return life.ImageTrouble(waitingReason(obj.(*corev1.Pod)))
}

var claimPhaseChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.(*corev1.PersistentVolumeClaim).Status.Phase !=
			e.ObjectNew.(*corev1.PersistentVolumeClaim).Status.Phase
	},
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, vm *v1.VirtualMachine) (View, error) {
	view := View{VM: vm, Staged: r.Config().LiveUpdate == nil, Now: r.Now()}
	if err := r.lookAtVMI(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtOptIn(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtDataVolumes(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtBrought(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtSnapshots(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtMemory(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtAddresses(ctx, &view); err != nil {
		return View{}, err
	}
	r.lookAtSandbox(ctx, &view)
	if err := r.lookAtReferences(ctx, &view); err != nil {
		return View{}, err
	}
	err := r.lookAtStarts(ctx, &view)
	return view, err
}

// lookAtVMI finds the VM's VMI, its pods and its claims.
func (r *Reconciler) lookAtVMI(ctx context.Context, view *View) error {
	vm := view.VM
	var instance v1.VirtualMachineInstance
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(vm), &instance)
	if apierrors.IsNotFound(err) {
		r.writes.Forget(&instance, client.ObjectKeyFromObject(vm))
		return nil
	}
	if err != nil {
		return fmt.Errorf("get VMI: %w", err)
	}
	if r.writes.Stale(&instance) || r.writes.Deleted(&instance) {
		return frame.ErrStale
	}
	if view.claim(&instance); view.VMI == nil {
		return nil
	}
	if view.Pods, err = vmicontroller.Pods(ctx, r.Client, &instance); err != nil {
		return err
	}
	for i := range instance.Spec.Volumes {
		name := claims.Name(&instance.Spec.Volumes[i])
		if name == "" || vmicontroller.Scheduled(&instance) {
			continue
		}
		var found corev1.PersistentVolumeClaim
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: name}, &found)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get claim %s: %w", name, err)
		}
		if err == nil {
			view.Claims = append(view.Claims, &found)
		}
	}
	return nil
}
