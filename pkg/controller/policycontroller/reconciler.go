package policycontroller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/virtkit/virtkit/pkg/controller/optional"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// patience bounds how long a read of the pods and namespaces may wait for their first listing.
const patience = time.Minute

// Policies returns the kind that is read where the cluster has it.
func Policies() optional.Kind {
	return optional.Kind{
		Version: multipolicy.Version, Resource: multipolicy.Resource, Object: &multipolicy.MultiNetworkPolicy{},
	}
}

// Reconciler compiles what holds for each VMI on networks of Multus.
type Reconciler struct {
	Client client.Client
	// Policies reads MultiNetworkPolicies, if the cluster has them: an *optional.Access.
	Policies Access

	writes    *frame.Writes
	concerned concerned
	// around reads the pods and namespaces. Nothing of them is watched before watchAround was called, once or more.
	around      client.Reader
	watchAround func() error
}

// Access reads a kind that the cluster may lack.
type Access interface {
	Settled(ctx context.Context) (bool, error)
	List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error
	Follow(c controller.Controller, users handler.MapFunc)
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	around, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Transform: slimPeer},
			namespaces():  {Transform: cache.TransformStripManagedFields()},
		},
	})
	if err != nil {
		return fmt.Errorf("make the cache of pods and namespaces: %w", err)
	}
	if err := mgr.Add(around); err != nil {
		return fmt.Errorf("add the cache of pods and namespaces: %w", err)
	}
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("networkpolicy").
		For(&v1.VirtualMachineInstance{}, builder.WithPredicates(onNetworks)).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.ofPeer),
			builder.WithPredicates(moves)).
		Build(&frame.Frame[*v1.VirtualMachineInstance, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
			Gone: func(_ context.Context, key types.NamespacedName) error {
				r.concerned.set(key, nil)
				return nil
			},
		})
	if err != nil {
		return err
	}
	r.Policies.Follow(built, r.ofPolicy)
	w := &watching{controller: built, around: around, users: r}
	r.around, r.watchAround = around, w.begin
	return nil
}

// namespaces returns the kind as it is watched: its metadata alone.
func namespaces() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}

var onNetworks = predicate.NewPredicateFuncs(func(object client.Object) bool {
	vmi := object.(*v1.VirtualMachineInstance)
	return !vmi.IsFinal() && len(multipolicy.On(vmi)) > 0
})

// ofPolicy returns the VMIs that a policy may hold for; all of them when the kind comes or goes.
func (r *Reconciler) ofPolicy(ctx context.Context, policy client.Object) []reconcile.Request {
	var vmis v1.VirtualMachineInstanceList
	var in []client.ListOption
	if policy.GetNamespace() != "" {
		in = append(in, client.InNamespace(policy.GetNamespace()))
	}
	if err := r.Client.List(ctx, &vmis, append(in, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMIs of a policy", "policy", policy.GetName())
		return nil
	}
	return frame.Requests(vmis.Items, func(vmi *v1.VirtualMachineInstance) bool {
		return !vmi.IsFinal() && len(multipolicy.On(vmi)) > 0
	})
}

// look compiles what holds for a VMI. Nothing is said before it is known whether there are policies.
func (r *Reconciler) look(ctx context.Context, vmi *v1.VirtualMachineInstance) (View, error) {
	on := multipolicy.On(vmi)
	if len(on) == 0 || vmi.IsFinal() { // one that is being deleted may run for long
		r.concerned.set(client.ObjectKeyFromObject(vmi), nil)
		return View{}, frame.ErrNothing
	}
	settled, err := r.Policies.Settled(ctx)
	if err != nil {
		return View{}, err
	}
	if !settled {
		return View{}, frame.ErrStale
	}
	var policies multipolicy.MultiNetworkPolicyList
	if err := r.Policies.List(ctx, &policies, client.InNamespace(vmi.Namespace)); err != nil {
		return View{}, err
	}
	asked, err := r.asked(ctx, vmi)
	if err != nil {
		return View{}, err
	}
	in := &multipolicy.Input{
		Namespace: vmi.Namespace, Labels: vmicontroller.PodLabels(vmi), Ports: vmicontroller.ContainerPorts(vmi),
		Interfaces: multipolicy.Networks(vmi, asked...), Policies: policies.Items,
	}
	rules, selects := multipolicy.Compile(in)
	key := client.ObjectKeyFromObject(vmi)
	if len(selects) == 0 {
		r.concerned.set(key, nil)
		return View{VMI: vmi, Rules: rules}, nil
	}
	// Before the pods are read, so that no change after that is missed.
	r.concerned.set(key, selects)
	if err := r.watchAround(); err != nil {
		return View{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if in.Namespaces, err = r.namespaces(ctx); err != nil {
		return View{}, err
	}
	if in.Peers, err = r.peers(ctx); err != nil {
		return View{}, err
	}
	rules, _ = multipolicy.Compile(in)
	return View{VMI: vmi, Rules: rules}, nil
}

// asked returns the annotations by which the pods of a VMI that have not ended asked for their networks.
func (r *Reconciler) asked(ctx context.Context, vmi *v1.VirtualMachineInstance) ([]map[string]string, error) {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{v1.CreatedByLabel: string(vmi.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list pods of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	var out []map[string]string
	for i := range pods.Items {
		if !life.PodEnded(&pods.Items[i]) {
			out = append(out, pods.Items[i].Annotations)
		}
	}
	return out, nil
}

// watching has a controller work on those whose policies mean pods and namespaces that change, from when it begins.
type watching struct {
	controller controller.Controller
	around     cache.Cache
	users      *Reconciler

	mu   sync.Mutex
	done bool
}

func (w *watching) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return nil
	}
	pods := handler.EnqueueRequestsFromMapFunc(w.users.ofPod)
	if err := w.controller.Watch(source.Kind(w.around, client.Object(&corev1.Pod{}), pods, changes)); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return w.users.concerned.all()
	})
	err := w.controller.Watch(source.Kind(w.around, client.Object(namespaces()), all, relabelled))
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	w.done = true
	return nil
}

// relabelled lets through namespaces that selectors may match from now on, or no more.
var relabelled predicate.TypedPredicate[client.Object] = predicate.LabelChangedPredicate{}

func (r *Reconciler) namespaces(ctx context.Context) (map[string]map[string]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.around.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	out := make(map[string]map[string]string, len(list.Items))
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].Labels
	}
	return out, nil
}

// apply writes the annotation.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if step.Text == "" {
		return nil
	}
	return r.writes.Change(ctx, view.VMI, func() {
		metav1.SetMetaDataAnnotation(&view.VMI.ObjectMeta, network.AnnotationPolicies, step.Text)
	})
}
