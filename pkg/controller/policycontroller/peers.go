package policycontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// slimPeer keeps of a pod what makes it a peer: labels, where it is on its networks, and the ports that it lists. Of a
// pod that is on none, or has ended, only its name is kept: most of a cluster's pods are that.
func slimPeer(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	meta := metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	status := pod.Annotations[network.AnnotationStatus]
	if status == "" || pod.Spec.HostNetwork || life.PodEnded(pod) {
		return &corev1.Pod{ObjectMeta: meta}, nil
	}
	meta.Labels = pod.Labels
	if status = multipolicy.Slim(pod.Annotations); status == "" {
		return &corev1.Pod{ObjectMeta: meta}, nil
	}
	meta.Annotations = map[string]string{network.AnnotationStatus: status}
	meta.OwnerReferences = pod.OwnerReferences
	var ports []corev1.ContainerPort
	for _, c := range pod.Spec.Containers {
		ports = append(ports, c.Ports...)
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			ports = append(ports, c.Ports...) // it runs beside the others
		}
	}
	slim := &corev1.Pod{ObjectMeta: meta}
	if len(ports) > 0 {
		slim.Spec.Containers = []corev1.Container{{Ports: ports}}
	}
	return slim, nil
}

// changes lets through what makes another peer of a pod that slimPeer has left.
var changes = predicate.TypedFuncs[client.Object]{
	CreateFunc: func(e event.CreateEvent) bool { return isPeer(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return isPeer(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return (isPeer(before) || isPeer(after)) && (!maps.Equal(before.Labels, after.Labels) ||
			!maps.Equal(before.Annotations, after.Annotations) || before.UID != after.UID)
	},
}

func isPeer(pod client.Object) bool { return len(pod.GetAnnotations()) > 0 }

// peers returns the pods on networks of Multus.
func (r *Reconciler) peers(ctx context.Context) ([]multipolicy.Peer, error) {
	var list corev1.PodList
	if err := r.around.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var out []multipolicy.Peer
	for i := range list.Items {
		pod := &list.Items[i]
		ends := multipolicy.EndsOf(pod.Annotations)
		if len(ends) == 0 {
			continue
		}
		peer := multipolicy.Peer{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Ends: ends}
		if len(pod.Spec.Containers) > 0 {
			peer.Ports = pod.Spec.Containers[0].Ports
		}
		if owner := life.InstanceOf(pod); owner != nil {
			var vmi v1.VirtualMachineInstance
			err := r.Client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, &vmi,
				client.UnsafeDisableDeepCopy)
			switch {
			case client.IgnoreNotFound(err) != nil:
				return nil, fmt.Errorf("get VirtualMachineInstance %s: %w", owner.Name, err)
			case err == nil && life.Recorded(&vmi, pod):
				addGuest(ends, &vmi)
			}
		}
		out = append(out, peer)
	}
	return out, nil
}

// addGuest adds the MACs of a guest to where its pod is: it has no others there, whatever addresses it has. The
// addresses of its pod may be those of the one before, since it keeps them when it migrates.
func addGuest(ends map[string]multipolicy.End, vmi *v1.VirtualMachineInstance) {
	for name, networks := range networksOf(vmi) {
		for _, on := range networks {
			end, there := ends[on]
			if mac := macOf(vmi, name); there && mac != "" {
				end.MACs = append(end.MACs, mac)
				ends[on] = end
			}
		}
	}
}

// networksOf returns the networks that a VMI's pods may be on, by interface: that which it names, and those of its own
// rules.
func networksOf(vmi *v1.VirtualMachineInstance) map[string][]string {
	out := map[string][]string{}
	rules, err := multipolicy.Decode(vmi.Annotations[network.AnnotationPolicies])
	for name, on := range multipolicy.On(vmi) {
		out[name] = []string{on}
		if err != nil {
			continue // there are none yet
		}
		for _, of := range append([]multipolicy.Interface{rules[name]}, rules[name].Others...) {
			if of.Network != "" && !slices.Contains(out[name], of.Network) {
				out[name] = append(out[name], of.Network)
			}
		}
	}
	return out
}

// macOf returns the MAC of a guest's interface: as its node says, or as it is to be; "" while nobody knows it.
func macOf(vmi *v1.VirtualMachineInstance, name string) string {
	mac := macaddress.Running(vmi, name)
	if mac == "" {
		nics := vmi.Spec.Domain.Devices.Interfaces
		at := slices.IndexFunc(nics, func(nic v1.Interface) bool { return nic.Name == name })
		if at >= 0 {
			mac = macaddress.OfInterface(vmi, &nics[at])
		}
	}
	if macaddress.Check(mac) != nil {
		return ""
	}
	return macaddress.Normal(mac)
}

// moves lets through VMIs that are other peers than before: with other pods or MACs.
var moves = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1.VirtualMachineInstance), e.ObjectNew.(*v1.VirtualMachineInstance)
		if len(multipolicy.On(before))+len(multipolicy.On(after)) == 0 {
			return false
		}
		return !maps.Equal(before.Status.ActivePods, after.Status.ActivePods) || before.IsFinal() != after.IsFinal() ||
			!equality.Semantic.DeepEqual(macsOf(before), macsOf(after)) ||
			!equality.Semantic.DeepEqual(networksOf(before), networksOf(after))
	},
}

func macsOf(vmi *v1.VirtualMachineInstance) map[string]string {
	out := map[string]string{}
	for name := range multipolicy.On(vmi) {
		out[name] = macOf(vmi, name)
	}
	return out
}

// ofPeer returns the VMIs whose policies may mean another VMI on one of its networks.
func (r *Reconciler) ofPeer(_ context.Context, object client.Object) []reconcile.Request {
	var networks []string
	for _, on := range networksOf(object.(*v1.VirtualMachineInstance)) {
		networks = append(networks, on...)
	}
	return r.concerned.on(networks)
}

// ofPod returns the VMIs whose policies may mean a pod.
func (r *Reconciler) ofPod(_ context.Context, pod client.Object) []reconcile.Request {
	return r.concerned.on(slices.Collect(maps.Keys(multipolicy.EndsOf(pod.GetAnnotations()))))
}

// concerned remembers the networks of the policies that hold for VMIs and select pods, by VMI.
type concerned struct {
	mu   sync.Mutex
	vmis map[types.NamespacedName][]string
}

// set remembers the networks on which policies that hold for a VMI select pods; none forget it.
func (c *concerned) set(vmi types.NamespacedName, networks []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(networks) == 0 {
		delete(c.vmis, vmi)
		return
	}
	if c.vmis == nil {
		c.vmis = map[types.NamespacedName][]string{}
	}
	c.vmis[vmi] = networks
}

// on returns the VMIs with a policy for one of some networks.
func (c *concerned) on(networks []string) []reconcile.Request {
	return c.requests(func(of []string) bool {
		return slices.ContainsFunc(networks, func(n string) bool { return slices.Contains(of, n) })
	})
}

func (c *concerned) all() []reconcile.Request { return c.requests(func([]string) bool { return true }) }

func (c *concerned) requests(is func(networks []string) bool) []reconcile.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []reconcile.Request
	for key, networks := range c.vmis {
		if is(networks) {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}
