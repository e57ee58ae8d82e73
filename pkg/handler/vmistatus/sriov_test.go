package vmistatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// TestSRIOV: a function of the node's network card has a row, and keeps its guest on the node.
func TestSRIOV(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{
		Spec: v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{Devices: v1.Devices{Interfaces: []v1.Interface{
			{Name: "default"},
			{Name: "red", InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}},
			{Name: "blue", InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}},
		}}}},
	}
	in := Input{
		VMI: vmi,
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			network.AnnotationStatus: `[{"interface":"eth0","default":true},{"name":"ns/red","interface":"podb1f51a511f1"},{"name":"ns/blue","interface":"pod16477688c0e"}]`,
		}}},
		Plan: &network.Plan{Interfaces: []network.Interface{
			{Name: "default", Binding: network.Masquerade, PodLink: "eth0", MAC: "02:00:00:00:00:01"},
			{
				Name: "red", Binding: network.SRIOV, PodLink: "podb1f51a511f1", MAC: "02:00:00:00:00:03",
				PCI: "0000:3b:02.1",
			},
			{Name: "blue", Binding: network.SRIOV, PodLink: "pod16477688c0e"},
		}},
		Guest: &launcherpb.GuestState{
			AgentConnected: true, InterfaceLinks: map[string]string{"default": "up"},
			InterfacesJson: []byte(
				`[{"interfaceName":"enp6s0","mac":"02:00:00:00:00:03","ipAddresses":["192.0.2.7"]}]`),
		},
	}
	want := []v1.VirtualMachineInstanceNetworkInterface{
		{
			Name: "default", MAC: "02:00:00:00:00:01", PodInterfaceName: "eth0", InfoSource: "domain", LinkState: "up",
			QueueCount: 1,
		},
		{
			Name: "red", IP: "192.0.2.7", IPs: []string{"192.0.2.7"}, MAC: "02:00:00:00:00:03", InterfaceName: "enp6s0",
			PodInterfaceName: "podb1f51a511f1", InfoSource: "domain, guest-agent, multus-status",
		},
		{Name: "blue", PodInterfaceName: "pod16477688c0e", InfoSource: "domain, multus-status"},
	}
	if diff := cmp.Diff(want, interfaces(in)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	c := &conditionList{now: now}
	migratable(vmi, nil, in.Plan, false, c)
	for _, got := range c.list {
		if got.Status != corev1.ConditionFalse || got.Reason != "HostDeviceNotLiveMigratable" {
			t.Errorf("%+v", got)
		}
	}
}
