package vmicontroller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/cdi"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/written"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Indexes of the cache.
const (
	// PodsByVMI has launcher pods by the UID of the VMI that owns them.
	PodsByVMI = "vmi-uid"
	// AttachmentsByPod has attachment pods by the UID of the launcher pod that owns them.
	AttachmentsByPod = "launcher-uid"
	// VMIsByClaim has VMIs by the names of the claims they use.
	VMIsByClaim = "claim-name"
)

// concurrency is the number of VMIs that are worked on at once: enough to hide the API server's latency.
const concurrency = 16

// Reconciler reads VMIs, pods, claims, DataVolumes and nodes from Client's cache, and writes pods, and the status,
// finalizer and node label of VMIs, and the readiness gates of pods. It watches all of these.
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
	// Random gives a number below n.
	Random func(n uint32) uint32
	// FenceAfter is Facts.FenceAfter of guests that are started again elsewhere; 0 is never.
	FenceAfter time.Duration
	// CDI reads and writes DataVolumes, if the cluster has them.
	CDI *cdi.Access
	// Created are the pods that were created for VMIs, by the VMI's UID. Migrations' reconciler shares it.
	Created *written.Creations

	// deadSince remembers by UID since when a VMI is seen without a pod alive (View.DeadSince). A
	// new leader starts to count anew, which only makes it more patient.
	deadSince sync.Map
	// unnamed are View.Unnamed, by the VMI's UID.
	unnamed  sync.Map
	writes   *frame.Writes
	endings  endings
	cids     cids
	silences silences
}

// SetupWithManager registers the reconciler and its indexes.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	indexer, vmi, pod := mgr.GetFieldIndexer(), &v1.VirtualMachineInstance{}, &corev1.Pod{}
	err := errors.Join(
		frame.Index[client.Object](ctx, indexer, pod, PodsByVMI, "pods by VMI", ByVMI),
		frame.Index(ctx, indexer, vmi, VMIsByClaim, "VMIs by claim", claimNames),
		frame.Index(ctx, indexer, vmi, VMIsWithTSC, "VMIs by the frequency of their time stamp counters",
			func(vmi *v1.VirtualMachineInstance) []string {
				if GivenTSC(vmi) > 0 {
					return []string{AnyTSC}
				}
				return nil
			}),
		frame.Index(ctx, indexer, pod, AttachmentsByPod, "attachment pods", func(pod *corev1.Pod) []string {
			if owner := life.LauncherOf(pod); owner != nil {
				return []string{string(owner.UID)}
			}
			return nil
		}),
	)
	if err != nil {
		return err
	}
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstance").
		For(&v1.VirtualMachineInstance{}).
		Owns(&corev1.Pod{}, builder.WithPredicates(r.endings.noting())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofAttachment)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.waitingFor)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Build(&frame.Frame[*v1.VirtualMachineInstance, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
			Gone: func(_ context.Context, key types.NamespacedName) error {
				r.endings.forget(key)
				return nil
			},
		})
	if err != nil {
		return err
	}
	r.CDI.Follow(built, r.waitingFor) // a DataVolume has its claim's name
	return nil
}

// waitingFor returns the VMIs that use a claim and have not ended: they wait for it, or it is expanded.
func (r *Reconciler) waitingFor(ctx context.Context, claim client.Object) []reconcile.Request {
	var vmis v1.VirtualMachineInstanceList
	err := r.Client.List(ctx, &vmis, client.InNamespace(claim.GetNamespace()),
		client.MatchingFields{VMIsByClaim: claim.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMIs by claim", "claim", claim.GetName())
		return nil
	}
	out := frame.Requests(vmis.Items, func(vmi *v1.VirtualMachineInstance) bool {
		return !vmi.IsFinal()
	})
	if name := claim.GetLabels()[vmstate.Prefix]; name != "" {
		out = append(out,
			reconcile.Request{NamespacedName: types.NamespacedName{Namespace: claim.GetNamespace(), Name: name}})
	}
	return out
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, vmi *v1.VirtualMachineInstance) (View, error) {
	view, err := r.lookAround(ctx, vmi)
	if err == nil {
		err = r.lookAtFacts(ctx, &view)
	}
	return view, err
}

// lookAround gathers all but View.Facts.
func (r *Reconciler) lookAround(ctx context.Context, vmi *v1.VirtualMachineInstance) (View, error) {
	view := View{VMI: vmi, Now: r.Now(), Claims: map[string]*corev1.PersistentVolumeClaim{}}
	if since, ok := r.deadSince.Load(vmi.UID); ok {
		view.DeadSince = since.(time.Time)
	}
	if err := r.lookAtPods(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtRecorded(ctx, &view); err != nil {
		return View{}, err
	}
	var err error
	if view.Holders, err = r.holders(ctx, vmi, view.Pods); err != nil {
		return View{}, err
	}
	if lostNode(vmi) {
		var node corev1.Node
		err := r.Client.Get(ctx, types.NamespacedName{Name: vmi.Status.NodeName}, &node)
		if client.IgnoreNotFound(err) != nil {
			return View{}, fmt.Errorf("get node %s: %w", vmi.Status.NodeName, err)
		}
		if err == nil {
			view.Node = &node
		}
		if err := r.lookAtSilence(ctx, &view); err != nil {
			return View{}, err
		}
	}
	if err := r.lookAtUncopied(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtAttachments(ctx, &view); err != nil {
		return View{}, err
	}
	if err := r.lookAtCID(ctx, &view); err != nil {
		return View{}, err
	}
	if err := lookAtMovedState(ctx, r.Client, vmi, view.Claims); err != nil {
		return View{}, err
	}
	if Scheduled(vmi) && len(hotplug.Volumes(&vmi.Spec)) == 0 {
		known, err := claimsOf(ctx, r.Client, vmi)
		maps.Copy(view.Claims, known)
		return view, err
	}
	known, err := Claims(ctx, r.Client, vmi)
	if err != nil {
		return View{}, err
	}
	maps.Copy(view.Claims, known)
	if !Scheduled(vmi) {
		if err := r.lookAtLeases(ctx, &view); err != nil {
			return View{}, err
		}
	}
	if view.TSC, err = r.chooseTSC(ctx, vmi); err != nil {
		return View{}, err
	}
	return view, r.lookAtDataVolumes(ctx, &view)
}

// Claims returns the VMI's PersistentVolumeClaims that exist, by name, with that of its persistent state.
func Claims(
	ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance,
) (map[string]*corev1.PersistentVolumeClaim, error) {
	claims, err := claimsOf(ctx, from, vmi)
	if err != nil {
		return nil, err
	}
	return claims, lookAtState(ctx, from, vmi, claims)
}

// claimsOf returns those of the VMI's volumes that exist, by name.
func claimsOf(
	ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance,
) (map[string]*corev1.PersistentVolumeClaim, error) {
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range claimNames(vmi) {
		var claim corev1.PersistentVolumeClaim
		err := from.Get(ctx, types.NamespacedName{Namespace: vmi.Namespace, Name: name}, &claim)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get claim %s: %w", name, err)
		}
		if err == nil {
			claims[name] = &claim
		}
	}
	return claims, nil
}

func (r *Reconciler) remember(vmi *v1.VirtualMachineInstance, step *Step, now time.Time) {
	if !step.Dead {
		r.deadSince.Delete(vmi.UID)
		return
	}
	r.deadSince.LoadOrStore(vmi.UID, now)
}

// apply does what the step says: pods first, then the VMI, its status before the node label. virt-handler begins with
// the label, so that it finds a status which is whole. A label that was not written is added by the next pass
// (watchOver).
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	vmi := view.VMI
	r.remember(vmi, step, view.Now)
	if step.AddFinalizer {
		// Before there is a pod, so that no VMI vanishes while it has one. The update comes back as an
		// event, and with it the next step.
		return r.writes.Change(ctx, vmi,
			func() { controllerutil.AddFinalizer(vmi, v1.VirtualMachineInstanceFinalizer) })
	}
	var createErr error
	if step.CreateState {
		createErr = r.createState(ctx, view, step)
	}
	for _, pod := range step.Strays {
		if err := r.removeStray(ctx, vmi, pod); err != nil {
			return err
		}
	}
	createErr = errors.Join(createErr, step.Failed)
	unnoted := NoteUsed(ctx, r.writes, step.Used)
	if apierrors.IsConflict(unnoted) {
		return errors.Join(createErr, unnoted)
	}
	for _, planned := range step.Pods {
		if unnoted != nil {
			createErr = errors.Join(createErr, step.podRefused(view, unnoted))
			break
		}
		createErr = errors.Join(createErr, r.createPod(ctx, view, step, planned))
	}
	if err := r.applyState(ctx, view, step); err != nil {
		return err
	}
	for _, pod := range step.DeletePods {
		if err := r.deletePod(ctx, vmi, pod); err != nil {
			return err
		}
	}
	for _, pod := range step.RemovePods {
		if _, err := r.writes.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return fmt.Errorf("remove pod %s: %w", pod.Name, err)
		}
	}
	if err := r.applyGates(ctx, step.Gates); err != nil {
		return err
	}
	if err := r.applyExpansions(ctx, step.Expansions); err != nil {
		return err
	}
	attachErr := r.applyAttachments(ctx, view, step, unnoted)
	createErr = errors.Join(createErr, attachErr)
	for _, event := range step.Events {
		r.Recorder.Event(vmi, event.Type, event.Reason, event.Message)
	}
	if err := frame.PatchStatus(ctx, r.writes, vmi, &vmi.Status, step.Status); err != nil {
		return errors.Join(createErr, err)
	}
	r.unnamed.Delete(vmi.UID)
	if step.NodeLabel != "" && vmi.Labels[v1.NodeNameLabel] != step.NodeLabel {
		err := r.writes.Change(ctx, vmi, func() {
			metav1.SetMetaDataLabel(&vmi.ObjectMeta, v1.NodeNameLabel, step.NodeLabel)
		})
		if err != nil {
			return err
		}
	}
	if step.RemoveFinalizer {
		if err := r.writes.RemoveFinalizer(ctx, vmi, v1.VirtualMachineInstanceFinalizer); err != nil {
			return err
		}
		r.Created.Forget(vmi.UID)
		return nil
	}
	return createErr
}

func (r *Reconciler) deletePod(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod) error {
	// The grace period of this moment: it may have been shortened since the pod was made.
	deleted, err := r.writes.Delete(ctx, pod, client.GracePeriodSeconds(podGrace(vmi)))
	if err != nil {
		r.Recorder.Eventf(vmi, corev1.EventTypeWarning, ReasonFailedDelete, "Error deleting pod %s: %v", pod.Name, err)
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	if deleted {
		r.Recorder.Eventf(vmi, corev1.EventTypeNormal, ReasonSuccessfulDelete,
			"Deleted virtual machine pod %s", pod.Name)
	}
	return nil
}
