package handler

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// What may be dialled for a guest is its own pod's, by the status; a pod that only looks like it adds nothing.
func TestAddressesOfTheLaunchersPod(t *testing.T) {
	status := func(pod, node string) corev1.PodStatus {
		return corev1.PodStatus{
			PodIPs: []corev1.PodIP{{IP: pod}, {IP: "fd00::5"}}, HostIPs: []corev1.HostIP{{IP: node}, {IP: "nonsense"}},
		}
	}
	pod, other := newPod(), newPod()
	pod.Status = status("10.42.1.5", "192.168.1.2")
	other.Name, other.UID, other.Status = "other", "11111111-2222-3333-4444-555555555555",
		status("10.42.9.9", "192.168.9.9")
	vmi := newVMI()
	r := &Reconciler{Cached: fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(pod, other).Build()}
	known, err := r.addresses(t.Context(), target{
		VMI: types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}, UID: vmi.UID, Pod: pod.UID,
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []netip.Addr{netip.MustParseAddr("10.42.1.5"), netip.MustParseAddr("fd00::5")}; !slices.Equal(known.Pod,
		want) {
		t.Errorf("the pod's addresses are %v, want %v", known.Pod, want)
	}
	if want := []netip.Addr{netip.MustParseAddr("192.168.1.2")}; !slices.Equal(known.Node, want) {
		t.Errorf("the node's addresses are %v, want %v", known.Node, want)
	}
}
