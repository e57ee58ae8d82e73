package gather

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/why"
)

// asked is a connection from pod shop/client, and the API server that knows what decides on it.
func asked(t *testing.T) (*clienttest.API, Asked) {
	t.Helper()
	api := clienttest.New(t)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "client"}}
	api.Put("/api/v1/namespaces/shop/pods/client", pod)
	for _, namespace := range []string{"ns", "shop"} {
		api.Put("/apis/networking.k8s.io/v1/namespaces/"+namespace+"/networkpolicies",
			networkingv1.NetworkPolicyList{Items: []networkingv1.NetworkPolicy{
				{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "of-" + namespace}},
			}})
		api.Put("/api/v1/namespaces/"+namespace, metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"team": "of-" + namespace}},
		})
	}
	source, err := Source(t.Context(), api.Client(), "shop", "client")
	if err != nil || source.Pod == nil || source.Pod.Name != "client" {
		t.Fatalf("%+v, %v", source, err)
	}
	return api, Asked{Source: source, Protocol: corev1.ProtocolTCP, Port: 80}
}

func aMachine() why.Facts {
	return why.Facts{
		Namespace: "ns", Name: "vm", VM: &v1.VirtualMachine{}, Unreadable: []string{"nodes"},
	}
}

func TestConnection(t *testing.T) {
	api, a := asked(t)
	f, err := Connection(t.Context(), api.Client(), aMachine(), a)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"ns", "shop"} {
		if all := f.Policies[namespace]; len(all) != 1 || all[0].Name != "of-"+namespace {
			t.Errorf("policies of %s: %+v", namespace, all)
		}
		labels := f.Namespaces[namespace]
		if labels["team"] != "of-"+namespace || labels[corev1.LabelMetadataName] != namespace {
			t.Errorf("labels of %s: %v", namespace, labels)
		}
	}
	if f.Port != 80 || f.Protocol != corev1.ProtocolTCP || f.Source.Pod == nil || f.Name != "vm" ||
		!slices.Equal(f.Unreadable, []string{"nodes"}) {
		t.Errorf("%+v", f)
	}
}

// The instance of the guest that connects by a network of Multus is read, if it is that of the pod.
func TestConnectionOnNetworks(t *testing.T) {
	api, a := asked(t)
	a.Source.Pod.Annotations = map[string]string{
		"k8s.v1.cni.cncf.io/network-status": `[{"name":"ns/red","ips":["192.0.2.2"]}]`,
		v1.DomainAnnotation:                 "till",
	}
	a.Source.Pod.Labels = map[string]string{v1.AppLabel: "virt-launcher", v1.CreatedByLabel: "till-uid"}
	facts := aMachine()
	facts.VMI = &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	facts.VMI.Spec.Networks = []v1.Network{
		{Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}}},
	}
	facts.VMI.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "red"}}
	const path = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/till"
	api.Put(path, &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "till", UID: "till-uid"}})
	f, err := Connection(t.Context(), api.Client(), facts, a)
	if err != nil || f.SourceVMI == nil || f.SourceVMI.Name != "till" || f.SourceGone {
		t.Errorf("%+v, %v", f.SourceVMI, err)
	}
	api.Put(path, &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "till", UID: "another"}})
	if f, err = Connection(t.Context(), api.Client(), facts, a); err != nil || f.SourceVMI != nil ||
		!f.SourceGone {
		t.Errorf("another of the name: %+v, %v", f.SourceVMI, err)
	}
	api.Put(path, clienttest.Forbidden("virtualmachineinstances"))
	f, err = Connection(t.Context(), api.Client(), facts, a)
	if err != nil || f.SourceVMI != nil || f.SourceGone || !slices.Contains(f.Unreadable, "virtualmachineinstances") {
		t.Errorf("%+v, %q, %v", f.SourceVMI, f.Unreadable, err)
	}
}

// What may not be read is missing, and named; the facts that were there stay as they are.
func TestConnectionUnreadable(t *testing.T) {
	api, a := asked(t)
	api.Put("/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies", clienttest.Forbidden("networkpolicies"))
	api.Put("/api/v1/namespaces/shop", clienttest.Forbidden("namespaces"))
	before := aMachine()
	f, err := Connection(t.Context(), api.Client(), before, a)
	if err != nil {
		t.Fatal(err)
	}
	if _, read := f.Policies["ns"]; read || f.Policies["shop"] == nil || f.Namespaces["shop"] != nil ||
		f.Namespaces["ns"] == nil {
		t.Errorf("policies %v, namespaces %v", f.Policies, f.Namespaces)
	}
	if !slices.Equal(f.Unreadable, []string{"namespaces", "networkpolicies", "nodes"}) ||
		!slices.Equal(before.Unreadable, []string{"nodes"}) {
		t.Errorf("unreadable are %q", f.Unreadable)
	}
}

// Of a client outside of the cluster only the policies of the guest's namespace are asked for; of a guest that is not
// there, nothing.
func TestConnectionOfOthers(t *testing.T) {
	api, a := asked(t)
	a.Source = why.Source{Address: netip.MustParseAddr("203.0.113.7")}
	f, err := Connection(t.Context(), api.Client(), aMachine(), a)
	if err != nil || len(f.Policies) != 1 || len(f.Policies["ns"]) != 1 || len(f.Namespaces) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	before := len(api.Asked("/networkpolicies"))
	if _, err := Connection(t.Context(), api.Client(), why.Facts{Namespace: "ns", Name: "x"}, a); err != nil {
		t.Error(err)
	}
	if after := len(api.Asked("/networkpolicies")); after != before {
		t.Errorf("%d policies were read for a VM that is not there", after-before)
	}
}

func TestSourceIsNotThere(t *testing.T) {
	api, _ := asked(t)
	_, err := Source(t.Context(), api.Client(), "shop", "ghost")
	want := `pods "ghost" not found in namespace "shop"`
	if !errors.Is(err, action.ErrNotFound) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
