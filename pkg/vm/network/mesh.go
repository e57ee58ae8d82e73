package network

import (
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

const (
	// InjectProxy is Istio's label, and its older annotation, of pods that get a proxy beside their containers.
	InjectProxy = "sidecar.istio.io/inject"
	// AnnotationProxied is Istio's annotation that names links of the pod, with commas between: what comes from them is
	// on its way out, as a guest's connections are.
	AnnotationProxied = "traffic.sidecar.istio.io/kubevirtInterfaces"
)

// ProxyPorts are the TCP ports at which Istio's proxy and its agent listen in the pod: see "Ports used by Istio" of its
// documentation. KubeVirt keeps the same ones from guests.
var ProxyPorts = []int32{15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090}

// UnproxiedPort is the TCP port at which the network reaches a guest directly in a pod with a proxy: SSH.
const UnproxiedPort = 22

// Proxied reports whether the VMI asks for Istio's proxy in its pod. The label goes before the annotation.
func Proxied(vmi *v1.VirtualMachineInstance) bool {
	asked, ok := vmi.Labels[InjectProxy]
	if !ok {
		asked = vmi.Annotations[InjectProxy]
	}
	return strings.EqualFold(asked, "true")
}

// ProxyAnnotations returns what the pod of a VMI tells Istio: the bridge by which a guest behind masquerade sends.
func ProxyAnnotations(vmi *v1.VirtualMachineInstance) map[string]string {
	if !Proxied(vmi) || vmi.Annotations[AnnotationProxied] != "" {
		return nil
	}
	networks := map[string]v1.Network{}
	for _, n := range vmi.Spec.Networks {
		networks[n.Name] = n
	}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if n := networks[nic.Name]; nic.Masquerade != nil && n.Pod != nil {
			bridge, _ := linkNames(n)
			return map[string]string{AnnotationProxied: bridge}
		}
	}
	return nil
}
