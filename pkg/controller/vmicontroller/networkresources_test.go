package vmicontroller

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

func definitionOf(namespace, name, resource string) client.Object {
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(networkDefinition)
	definition.SetNamespace(namespace)
	definition.SetName(name)
	if resource != "" {
		definition.SetAnnotations(map[string]string{network.AnnotationResource: resource})
	}
	return definition
}

func TestNetworks(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, networkDefinition.GroupVersion())
	scheme.AddKnownTypeWithName(networkDefinition, &unstructured.Unstructured{})
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		definitionOf("default", "card", "intel.com/sriov_a"), definitionOf("other", "card", "intel.com/sriov_b"),
		definitionOf("default", "plain", ""),
		definitionOf("default", "own", "cpu"), definitionOf("default", "kube", "x.kubernetes.io/y"),
		definitionOf("default", "odd", "a/b c"),
	).Build()
	for name, tc := range map[string]struct {
		binding, definition string
		want                map[string]string
		err                 string
	}{
		"a card's":             {"sriov", "card", map[string]string{"red": "intel.com/sriov_a"}, ""},
		"in another namespace": {"sriov", "other/card", map[string]string{"red": "intel.com/sriov_b"}, ""},
		"of a bridge":          {"bridge", "card", map[string]string{"red": "intel.com/sriov_a"}, ""},
		"none":                 {"bridge", "plain", nil, ""},
		"no definition":        {"bridge", "missing", nil, ""},
		"none for a card": {
			"sriov", "plain", nil,
			`network "red": NetworkAttachmentDefinition default/plain has no annotation k8s.v1.cni.cncf.io/resourceName`,
		},
		"no definition of a card": {
			"sriov", "missing", nil, `network "red": there is no NetworkAttachmentDefinition default/missing`,
		},
		"a resource of the pod's": {
			"bridge", "own", nil,
			`network "red": annotation k8s.v1.cni.cncf.io/resourceName of NetworkAttachmentDefinition default/own is not the name of a resource`,
		},
		"one of Kubernetes'": {"bridge", "kube", nil, `is not the name of a resource`},
		"no name":            {"bridge", "odd", nil, `is not the name of a resource`},
	} {
		vmi := parseVMI(t,
			`spec: {domain: {devices: {interfaces: [{name: red, `+tc.binding+
				`: {}}]}}, networks: [{name: red, multus: {networkName: `+tc.definition+`}}]}`)
		got, _, err := Networks(t.Context(), live, live, vmi)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, _, err := Networks(t.Context(), nil, nil, parseVMI(t, "")); got != nil || err != nil {
		t.Errorf("of the pod network: %v, %v", got, err)
	}
}

// A pod whose networks ask for what nobody knows is not made; the status says why, and it is tried again.
func TestNetworkErr(t *testing.T) {
	view := View{VMI: testVMI(t, v1.Pending), Now: now, Facts: Facts{NetworkErr: errors.New("no such network")}}
	step := Next(view)
	c := conditions.Find(step.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
	if step.CreatePod || len(step.Pods) > 0 || step.Failed == nil || c == nil ||
		c.Message != "create pod: no such network" {
		t.Errorf("%+v, condition %+v", step, c)
	}
	view.Facts.NetworkErr = nil
	step = Next(view)
	if !step.CreatePod || step.Failed != nil || len(step.Pods) != 1 || step.Pods[0].Pod.Name != PodName(view.VMI) ||
		step.Pods[0].For != purposeLauncher {
		t.Errorf("%+v", step)
	}
}

// How the networks keep addresses is read with them: of definitions that there are and that can be read.
func TestKeepings(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, networkDefinition.GroupVersion())
	scheme.AddKnownTypeWithName(networkDefinition, &unstructured.Unstructured{})
	of := func(name, config string) client.Object {
		definition := definitionOf("default", name, "").(*unstructured.Unstructured)
		definition.Object["spec"] = map[string]any{"config": config}
		return definition
	}
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		of("local", `{"type":"bridge","ipam":{"type":"host-local","subnet":"192.0.2.0/24"}}`),
		of("static", `{"type":"bridge","ipam":{"type":"static"}}`), of("odd", "{"),
	).Build()
	for name, want := range map[string]ipaddress.Way{
		"local": ipaddress.ByArgument, "static": ipaddress.ByArgument, "odd": "", "missing": "",
	} {
		vmi := parseVMI(t, `
metadata: {annotations: {`+ipaddress.Wish+`: '{"red":["192.0.2.7/24"]}'}}
spec: {domain: {devices: {interfaces: [{name: red, bridge: {}}]}}, networks: [{name: red, multus: {networkName: `+
			name+`}}]}`)
		_, keepings, err := Networks(t.Context(), live, live, vmi)
		if err != nil || keepings["red"].Way != want {
			t.Errorf("%s: %+v, %v", name, keepings, err)
		}
		facts := baseFacts()
		facts.Keepings = keepings
		vmi.Annotations[ipaddress.PodAnnotation] = "forged"
		annotations := Pod(vmi, facts).Annotations
		asks := strings.Contains(annotations[network.AnnotationNetworks], `"ips":["192.0.2.7/24"]`)
		if kept := annotations[ipaddress.PodAnnotation]; asks != (want != "") || (kept == "red") != (name == "local") ||
			kept == "forged" {
			t.Errorf("%s: the pod has %v", name, annotations)
		}
	}
}

// The target of a migration that brings the guest to another network is told so: it asks for the address that is wished
// for, which one that stays on its network does not.
func TestKeepingsOfAMove(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, networkDefinition.GroupVersion())
	scheme.AddKnownTypeWithName(networkDefinition, &unstructured.Unstructured{})
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	definition := definitionOf("default", "blue-net", "").(*unstructured.Unstructured)
	definition.Object["spec"] = map[string]any{
		"config": `{"type":"bridge","ipam":{"type":"host-local","subnet":"192.0.2.0/24"}}`,
	}
	vmi := parseVMI(t, `
metadata: {uid: vmi, annotations: {`+ipaddress.Wish+`: '{"red":["192.0.2.7"]}'}}
spec:
  domain: {devices: {interfaces: [{name: red, bridge: {}}]}}
  networks: [{name: red, multus: {networkName: blue-net}}]
status: {nodeName: node01, activePods: {pod: node01}}`)
	for on, comes := range map[string]bool{"red-net": true, "blue-net": false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: "launcher", UID: "pod", Labels: map[string]string{v1.CreatedByLabel: "vmi"},
			Annotations: map[string]string{network.AnnotationNetworks: fmt.Sprintf(
				`[{"name":%q,"namespace":"default","interface":%q}]`, on, network.LinkOf(vmi.Spec.Networks[0]))},
		}}
		pod.Spec.NodeName = "node01"
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition, pod).Build()
		_, keepings, err := Networks(t.Context(), live, live, vmi)
		if err != nil || keepings["red"].Comes != comes {
			t.Fatalf("from %s: %+v, %v", on, keepings, err)
		}
		facts := baseFacts()
		facts.Keepings = keepings
		asked := Pod(vmi, facts).Annotations[network.AnnotationNetworks]
		if strings.Contains(asked, `"ips":["192.0.2.7"]`) != comes {
			t.Errorf("from %s: the pod asks for %s", on, asked)
		}
	}
}
