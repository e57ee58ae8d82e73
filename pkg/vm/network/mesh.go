package network

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

const (
	// InjectProxy is Istio's label, and its older annotation, of pods that get a proxy beside their containers.
	InjectProxy = "sidecar.istio.io/inject"
	// AnnotationRerouted is Istio's annotation that names links of the pod, with commas between: what comes from them
	// is on its way out, as a guest's connections are.
	AnnotationRerouted = "istio.io/reroute-virtual-interfaces"
	// AnnotationProxied is the name that it had before Istio 1.25, some releases of which pass over it
	// (https://github.com/istio/istio/issues/57662).
	AnnotationProxied = "traffic.sidecar.istio.io/kubevirtInterfaces"
)

// asksForProxy is the value of InjectProxy that asks for the proxy.
const asksForProxy = "true"

// ProxyPorts are the TCP ports at which Istio's proxy and its agent listen in the pod: see "Ports used by Istio" of its
// documentation. KubeVirt keeps the same ones from guests.
var ProxyPorts = []int32{15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090}

// UnproxiedPort is the TCP port at which the network reaches a guest directly in a pod with a proxy: SSH.
const UnproxiedPort = 22

// Proxied reports whether the VMI asks for Istio's proxy in its pod.
func Proxied(vmi *v1.VirtualMachineInstance) bool {
	wish, _ := proxyWish(vmi)
	return wish == asksForProxy
}

// ProxyLabels returns the label by which Istio sees the wish of a VMI in its pod: Istio's webhook selects pods by it,
// not by the annotation.
func ProxyLabels(vmi *v1.VirtualMachineInstance) map[string]string {
	wish, ok := proxyWish(vmi)
	if !ok {
		return nil
	}
	return map[string]string{InjectProxy: wish}
}

// proxyWish returns what a VMI says of the proxy, if it does. The annotation goes before the label, as in KubeVirt,
// unless it is none that a label could be. A wish for the proxy is in the only spelling that Istio's webhook selects.
func proxyWish(vmi *v1.VirtualMachineInstance) (wish string, ok bool) {
	wish, ok = vmi.Annotations[InjectProxy]
	if !ok || len(validation.IsValidLabelValue(wish)) > 0 {
		wish, ok = vmi.Labels[InjectProxy]
	}
	if strings.EqualFold(wish, asksForProxy) {
		wish = asksForProxy
	}
	return wish, ok
}

// ProxyAnnotations returns what the pod of a VMI tells Istio: the bridge by which a guest behind masquerade sends, by
// both names. It does so without a wish of the VMI, too, since the proxy may be a wish of the namespace. A VMI that has
// one of the names itself means both.
func ProxyAnnotations(vmi *v1.VirtualMachineInstance) map[string]string {
	for _, name := range []string{AnnotationRerouted, AnnotationProxied} {
		if own, ok := vmi.Annotations[name]; ok {
			return rerouted(own, vmi.Annotations)
		}
	}
	networks := map[string]v1.Network{}
	for _, n := range vmi.Spec.Networks {
		networks[n.Name] = n
	}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if n := networks[nic.Name]; nic.Masquerade != nil && n.Pod != nil {
			bridge, _ := linkNames(n)
			return rerouted(bridge, nil)
		}
	}
	return nil
}

// rerouted returns the annotations that name links, but for those that a VMI has.
func rerouted(links string, own map[string]string) map[string]string {
	out := map[string]string{AnnotationRerouted: links, AnnotationProxied: links}
	maps.DeleteFunc(out, func(name, _ string) bool { _, has := own[name]; return has })
	return out
}
