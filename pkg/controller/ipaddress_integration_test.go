//go:build integration

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// installMultus brings the kind of Multus' networks.
func (t *test) installMultus() {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "network-attachment-definitions.k8s.cni.cncf.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "k8s.cni.cncf.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "network-attachment-definitions", Singular: "network-attachment-definition",
				Kind: "NetworkAttachmentDefinition", ListKind: "NetworkAttachmentDefinitionList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
	t.must(cluster.Client.Create(t.ctx, definition))
	t.Cleanup(func() { t.undefine(definition) })
}

// multus makes a network, once its kind is served.
func (t *test) multus(name, config string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"namespace": t.namespace, "name": name},
		"spec":     map[string]any{"config": config},
	}}
	t.eventually("network "+name, func() (bool, error) {
		err := cluster.Client.Create(t.ctx, object)
		return err == nil || apierrors.IsAlreadyExists(err), nil // its kind is served a moment later
	})
}

// got plays Multus, which reports the address of the pod's link on network red.
func (t *test) got(pod *corev1.Pod, address string) {
	t.Helper()
	before := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, network.AnnotationStatus, fmt.Sprintf(
		`[{"name":"%s/red","interface":%q,"ips":[%q]}]`, t.namespace, network.LinkOf(onRed(t).Networks[0]), address))
	t.must(cluster.Client.Patch(t.ctx, pod, client.MergeFrom(before)))
}

// onRed is a spec with one interface, on network red of the test's namespace.
func onRed(t *test) v1.VirtualMachineInstanceSpec {
	out := v1.VirtualMachineInstanceSpec{Networks: []v1.Network{{
		Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: t.namespace + "/red"}},
	}}}
	out.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "red", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
	}}
	return out
}

// A VM's IP address is recorded when Multus has reported it, in the VM and in its VMI, and the pod of the next start
// asks for it; the target of a migration does not. A VM whose recorded address another guest has starts with another
// one, which it says; one whose author wishes for that address does not start until the other guest has ended.
func TestIPsStay(tt *testing.T) {
	t := newSerialTest(tt)
	t.installMultus()
	t.multus("red", `{"cniVersion":"1.0.0","name":"red","type":"bridge","capabilities":{"ips":true},`+
		`"ipam":{"type":"host-local","subnet":"192.0.2.0/24"}}`)
	vm := t.createVM(v1.RunStrategyHalted)
	before := vm.DeepCopy()
	wires := onRed(t)
	vm.Spec.Template.Spec.Domain.Devices.Interfaces, vm.Spec.Template.Spec.Networks =
		wires.Domain.Devices.Interfaces, wires.Networks
	vm.Spec.RunStrategy = new(v1.RunStrategyManual)
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	vmi, pod := t.run("node01")
	if asked := pod.Annotations[network.AnnotationNetworks]; strings.Contains(asked, `"ips"`) ||
		pod.Annotations[ipaddress.PodAnnotation] != "red" {
		t.Errorf("the first pod has %v", pod.Annotations)
	}
	t.got(pod, "192.0.2.7")
	has := func(object client.Object) bool {
		given := ipaddress.Recorded(object)["red"]
		return given.Network == t.namespace+"/red" && len(given.Addresses) == 1 && given.Addresses[0] == "192.0.2.7"
	}
	t.waitVM("has the address", func(vm *v1.VirtualMachine) bool { return has(vm) })
	t.waitVMI("has the address", func(vmi *v1.VirtualMachineInstance) bool { return has(vmi) })

	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.request(
		v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &vmi.UID},
		v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest},
	)
	t.endPod(pod)
	again := t.waitAnother(vmi.UID)
	next := t.waitPod(again)
	if asked := next.Annotations[network.AnnotationNetworks]; !has(again) ||
		!strings.Contains(asked, `"ips":["192.0.2.7"]`) {
		t.Errorf("the next VMI has %v, its pod asks for %s", again.Annotations, asked)
	}
	again, next = t.run("node01")
	t.got(next, "192.0.2.7")
	t.waitPrintable(v1.VirtualMachineStatusRunning)

	if _, err := cluster.CreateNode(t.ctx, "node-ips"); err != nil {
		t.Fatal(err)
	}
	migration := t.createMigration("there")
	target := t.placeTarget(migration, "node-ips")
	if asked := target.Annotations[network.AnnotationNetworks]; strings.Contains(asked, `"ips"`) ||
		!strings.Contains(asked, `"mac"`) || target.Annotations[ipaddress.PodAnnotation] != "red" {
		t.Errorf("the target has %v", target.Annotations)
	}
	t.got(target, "192.0.2.8")
	t.must(cluster.Client.Delete(t.ctx, migration))
	t.endPod(target)
	t.waitGone(migration)
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &again.UID})
	t.endPod(next)
	if vm := t.waitPrintable(v1.VirtualMachineStatusStopped); !has(vm) {
		t.Errorf("stopped, the VM has %v", vm.Annotations)
	}

	other := &v1.VirtualMachineInstance{}
	other.Namespace, other.Name, other.Spec = t.namespace, "other", *vm.Spec.Template.Spec.DeepCopy()
	other.Annotations = map[string]string{ipaddress.Wish: `{"red":["192.0.2.7"]}`}
	t.must(cluster.Client.Create(t.ctx, other))
	t.eventually("virt-controller knows the other guest", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(other), other)
		return other.Status.Phase != "", err
	})
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	last, pod := t.run("node01")
	if asked := pod.Annotations[network.AnnotationNetworks]; strings.Contains(asked, `"ips"`) {
		t.Errorf("the VM asks for the address of another guest: %s", asked)
	}
	t.got(pod, "192.0.2.9")
	t.waitVM("has another address", func(vm *v1.VirtualMachine) bool {
		return slices.Equal(ipaddress.Recorded(vm)["red"].Addresses, []string{"192.0.2.9"})
	})
	t.eventually("an event says that it has another", func() (bool, error) {
		var events corev1.EventList
		err := cluster.Client.List(t.ctx, &events, client.InNamespace(t.namespace))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "IPAddressChanged" && e.Message == "Interface red has the IP address 192.0.2.9 on "+
				"network "+t.namespace+"/red, and had 192.0.2.7"
		}), err
	})
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &last.UID})
	t.endPod(pod)
	vm = t.waitPrintable(v1.VirtualMachineStatusStopped)

	before = vm.DeepCopy()
	metav1.SetMetaDataAnnotation(&vm.Spec.Template.ObjectMeta, ipaddress.Wish, `{"red":["192.0.2.7"]}`)
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	t.waitVM("says whose IP address it has", func(vm *v1.VirtualMachine) bool {
		failure := conditions.Find(vm.Status.Conditions, v1.VirtualMachineFailure)
		whose := "192.0.2.7 is the IP address of VirtualMachineInstance " + t.namespace + "/other, interface red"
		return failure != nil && failure.Reason == "IPAddressInUse" && !vm.Status.Created &&
			strings.Contains(failure.Message, whose)
	})
	t.must(cluster.Client.Delete(t.ctx, other))
	t.waitGone(other)
	t.waitVM("starts", func(vm *v1.VirtualMachine) bool {
		return vm.Status.Created && conditions.Find(vm.Status.Conditions, v1.VirtualMachineFailure) == nil
	})
}
