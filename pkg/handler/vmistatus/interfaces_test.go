package vmistatus

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

func TestInterfaces(t *testing.T) {
	in := Input{
		VMI: &v1.VirtualMachineInstance{Spec: v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{Devices: v1.Devices{
			Interfaces: []v1.Interface{
				{Name: "blue", State: v1.InterfaceStateLinkDown},
				{Name: "default"},
				{Name: "red"},
			},
		}}}},
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			network.AnnotationStatus: `[{"interface":"eth0","default":true},{"name":"ns/red","interface":"podb1f51a511f1"},{"name":"ns/blue","interface":"pod16477688c0e"}]`,
		}}},
		Plan: &network.Plan{Interfaces: []network.Interface{
			{Name: "blue", Binding: network.Bridge, PodLink: "pod16477688c0e", MAC: "02:00:00:00:00:02"},
			{
				Name: "default", Binding: network.Masquerade, PodLink: "eth0", MAC: "02:00:00:00:00:01",
				PodIPs: []netip.Addr{netip.MustParseAddr("10.128.1.5")},
			},
			{Name: "red", Binding: network.Bridge, PodLink: "podb1f51a511f1", MAC: "02:00:00:00:00:03"},
		}},
		Guest: &launcherpb.GuestState{AgentConnected: true, InterfacesJson: []byte(`[
			{"interfaceName":"eth1","mac":"02:00:00:00:00:01","ipAddresses":["10.0.2.2"]},
			{"interfaceName":"eth2","mac":"02:00:00:00:00:03","ipAddresses":["192.0.2.7"]},
			{"interfaceName":"docker0","mac":"02:00:00:00:00:09","ipAddresses":["172.17.0.1"]}]`)},
	}
	want := []v1.VirtualMachineInstanceNetworkInterface{
		{
			Name: "default", IP: "10.128.1.5", IPs: []string{"10.128.1.5"}, MAC: "02:00:00:00:00:01",
			InterfaceName: "eth1", PodInterfaceName: "eth0", InfoSource: "domain, guest-agent", LinkState: "up",
			QueueCount: 1,
		},
		{
			Name: "blue", MAC: "02:00:00:00:00:02", PodInterfaceName: "pod16477688c0e",
			InfoSource: "domain, multus-status", LinkState: "down", QueueCount: 1,
		},
		{
			Name: "red", IP: "192.0.2.7", IPs: []string{"192.0.2.7"}, MAC: "02:00:00:00:00:03", InterfaceName: "eth2",
			PodInterfaceName: "podb1f51a511f1", InfoSource: "domain, guest-agent, multus-status", LinkState: "up",
			QueueCount: 1,
		},
		{
			IP: "172.17.0.1", IPs: []string{"172.17.0.1"}, MAC: "02:00:00:00:00:09", InterfaceName: "docker0",
			InfoSource: "guest-agent",
		},
	}
	if diff := cmp.Diff(want, interfaces(in)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestInterfaceComes: an interface that the guest has not got yet, in a pod without and with its network.
func TestInterfaceComes(t *testing.T) {
	in := Input{
		VMI: &v1.VirtualMachineInstance{Spec: v1.VirtualMachineInstanceSpec{
			Domain: v1.DomainSpec{Devices: v1.Devices{Interfaces: []v1.Interface{
				{
					Name:                   "default",
					InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
				},
				{Name: "red", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}},
			}}},
			Networks: []v1.Network{
				*v1.DefaultPodNetwork(),
				{Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red-net"}}},
			},
		}},
		Pod: &corev1.Pod{},
		Plan: &network.Plan{
			Interfaces: []network.Interface{{Name: "default", PodLink: "eth0"}, {Name: "out", PodLink: "pod1"}},
		},
		Guest: &launcherpb.GuestState{InterfaceLinks: map[string]string{"default": "up"}},
	}
	look := func() (rows, condition string) {
		for _, row := range interfaces(in) {
			rows += row.Name + ": " + row.InfoSource + "; "
		}
		c := conditionList{
			list: []v1.VirtualMachineInstanceCondition{
				{Type: v1.VirtualMachineInstanceMigrationRequired, Message: "old"},
			},
		}
		mustMove(in, &c)
		for _, x := range c.list {
			condition = x.Reason + ": " + x.Message
		}
		return rows, condition
	}
	const required = "AutoMigrationDueToLiveUpdate: The guest gets its new interface red in another pod: it has to " +
		"migrate, or to be restarted."
	if rows, condition := look(); rows != "default: domain; " || condition != required {
		t.Errorf("in the pod it has: %q, %q", rows, condition)
	}
	in.Pod.Annotations = network.Annotations(in.VMI, nil, nil)
	in.Pod.Annotations[network.AnnotationStatus] = `[{"name":"red-net","interface":"podb1f51a511f1"}]`
	in.Plan.Interfaces[1] = network.Interface{Name: "red", PodLink: "podb1f51a511f1"}
	if rows, condition := look(); rows != "default: domain; red: multus-status; " || condition != "" {
		t.Errorf("in another pod: %q, %q", rows, condition)
	}
	in.Guest.InterfaceLinks["red"] = "up"
	if rows, condition := look(); rows != "default: domain; red: domain, multus-status; " || condition != "" {
		t.Errorf("once it is plugged in: %q, %q", rows, condition)
	}
	to := in.VMI.DeepCopy()
	to.Spec.Networks[1].Multus.NetworkName = "blue-net"
	in.VMI = to
	const moved = "AutoMigrationDueToLiveUpdate: The guest has its interface red on its new network in another pod: " +
		"it has to migrate, or to be restarted."
	if _, condition := look(); condition != moved {
		t.Errorf("on another network: %q", condition)
	}
	to.Spec.Domain.Devices.Interfaces = append(to.Spec.Domain.Devices.Interfaces, v1.Interface{
		Name: "new", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
	})
	to.Spec.Networks = append(to.Spec.Networks, v1.Network{
		Name: "new", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red-net"}},
	})
	if _, condition := look(); condition != "AutoMigrationDueToLiveUpdate: The guest gets its new interface new and "+
		"has its interface red on its new network in another pod: it has to migrate, or to be restarted." {
		t.Errorf("on another network, and a new interface: %q", condition)
	}
	in.Pod = nil
	if _, condition := look(); condition != ": old" {
		t.Errorf("without a pod: %q", condition)
	}
}

// A guest of two families has the pod's addresses in the pod's order, of which the first is the cluster's first family.
func TestInterfacesDualStack(t *testing.T) {
	four, six := netip.MustParseAddr("10.128.1.5"), netip.MustParseAddr("fd42::5")
	for _, test := range []struct {
		name      string
		pod, want []string
	}{
		{"IPv4 first", []string{"10.128.1.5", "fd42::5"}, []string{"10.128.1.5", "fd42::5"}},
		{"IPv6 first", []string{"fd42::5", "10.128.1.5"}, []string{"fd42::5", "10.128.1.5"}},
		{"not reported yet", nil, []string{"10.128.1.5", "fd42::5"}},
		{"of another link", []string{"192.0.2.1"}, []string{"10.128.1.5", "fd42::5"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{}
			for _, ip := range test.pod {
				pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
			}
			got := interfaces(Input{
				VMI: &v1.VirtualMachineInstance{Spec: v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{
					Devices: v1.Devices{Interfaces: []v1.Interface{{Name: "default"}}},
				}}},
				Pod: pod,
				Plan: &network.Plan{Interfaces: []network.Interface{{
					Name: "default", Binding: network.Masquerade, PodLink: "eth0", MAC: "02:00:00:00:00:01",
					PodIPs: []netip.Addr{four, six},
				}}},
				Guest: &launcherpb.GuestState{},
			})
			if len(got) != 1 || got[0].IP != test.want[0] {
				t.Fatalf("%+v", got)
			}
			if diff := cmp.Diff(test.want, got[0].IPs); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
