package vmicontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// TestPluginsOfPod: what a network binding plugin wants of the pod.
func TestPluginsOfPod(t *testing.T) {
	vmi := parseVMI(t,
		`spec: {domain: {devices: {interfaces: [{name: default, binding: {name: l2}}]}}, networks: [{name: default, pod: {}}]}`)
	facts := Facts{Config: config.Default(), Image: "launcher"}
	without := Pod(vmi, facts)
	facts.Config.Allowed.Bindings = map[string]v1.InterfaceBindingPlugin{"l2": {
		DomainAttachmentType: v1.ManagedTap, NetworkAttachmentDefinition: "l2-net",
		ComputeResourceOverhead: &v1.ResourceRequirementsWithoutClaims{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("5Mi")},
		},
	}}
	with := Pod(vmi, facts)
	before, after := without.Spec.Containers[0].Resources.Requests.Memory(),
		with.Spec.Containers[0].Resources.Requests.Memory()
	if after.Value()-before.Value() != 5<<20 {
		t.Errorf("requests %s, and %s without", after, before)
	}
	want := `[{"name":"l2-net","namespace":"` + vmi.Namespace + `","cni-args":{"logicNetworkName":"default"}}]`
	if got := with.Annotations[network.AnnotationNetworks]; got != want {
		t.Errorf("the pod asks for %s", got)
	}
	if _, asked := without.Annotations[network.AnnotationNetworks]; asked {
		t.Error("asked for without a definition")
	}
}
