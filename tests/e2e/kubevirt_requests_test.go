//go:build e2e

package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
)

// Quantities may be written as fractions, without quotes, as in pods.
func TestFractionsInRequests(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	vm := newVM(ns, "fraction", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.APIVersion, vm.Kind = v1.GroupVersion.String(), v1.VirtualMachineGroupVersionKind.Kind
		requests := &vm.Spec.Template.Spec.Domain.Resources.Requests
		if *requests == nil {
			*requests = map[corev1.ResourceName]resource.Quantity{}
		}
		(*requests)[corev1.ResourceCPU] = resource.MustParse("222")
	})
	body, err := json.Marshal(vm)
	if err != nil {
		t.Fatal(err)
	}
	body = []byte(strings.Replace(string(body), `"222"`, "0.05", 1))
	if err := c.Kube.CoreV1().RESTClient().Post().AbsPath("/apis/kubevirt.io/v1/namespaces", ns, "virtualmachines").
		SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	g := &guest{cluster: c, ns: ns, name: vm.Name}
	vmi := g.waitPhase(t, bootTime, v1.Running)
	if cpu := vmi.Spec.Domain.Resources.Requests.Cpu(); cpu.MilliValue() != 50 {
		t.Errorf("the guest requests %s of a CPU", cpu)
	}
}

// What KubeVirt refuses of a guest that runs is refused in its words.
func TestRefusalsOfRunningGuests(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "probed", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		probe := &v1.Probe{InitialDelaySeconds: 600}
		probe.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(22)}
		vm.Spec.Template.Spec.LivenessProbe = probe
	}))
	g.waitPhase(t, bootTime, v1.Running)
	err := c.Kube.CoreV1().RESTClient().Verb(http.MethodPut).AbsPath("/apis/subresources.kubevirt.io/v1/namespaces", ns,
		"virtualmachineinstances", g.name, "pause").Do(t.Context()).Error()
	if !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "Pausing VMIs with LivenessProbe is currently not supported") {
		t.Errorf("pause: %v", err)
	}
}
