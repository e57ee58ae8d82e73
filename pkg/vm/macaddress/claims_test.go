package macaddress

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
)

// A VM has the addresses of its spec and the recorded ones; a VMI also those of its guest.
func TestClaims(t *testing.T) {
	vm := vmOf(t, `annotations: {"`+Annotation+`": '{"vm":"shop/web","interfaces":{"default":"02:00:00:00:00:01","red":"02:00:00:00:00:0b","mine":"02:00:00:00:00:0c"}}'}`, three)
	want := []Claim{
		{Interface: "default", Index: 0, MAC: "02:00:00:00:00:01", Network: PodNetwork},
		{Interface: "red", Index: 1, MAC: "02:00:00:00:00:0b", Network: "shop/red-net", Shared: true},
		{Interface: "mine", Index: 2, MAC: "02:00:00:00:00:0a", Network: "other/net", Explicit: true, Shared: true},
	}
	if diff := cmp.Diff(want, OfVM(vm)); diff != "" {
		t.Errorf("VM: -want +got:\n%s", diff)
	}
	vmi := &v1.VirtualMachineInstance{ObjectMeta: vm.ObjectMeta, Spec: vm.Spec.Template.Spec}
	if diff := cmp.Diff(want, OfVMI(vmi)); diff != "" {
		t.Errorf("VMI that starts: -want +got:\n%s", diff)
	}
	vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "red", MAC: "02:00:00:00:00:99"}}
	want[1].MAC = "02:00:00:00:00:99"
	if diff := cmp.Diff(want, OfVMI(vmi)); diff != "" {
		t.Errorf("VMI that runs: -want +got:\n%s", diff)
	}
	vmi.Spec.Domain.Devices.Interfaces[1].State = v1.InterfaceStateAbsent
	if got := OfVMI(vmi); len(got) != 2 {
		t.Errorf("unplugged: %+v", got)
	}
	bridged := vmOf(t, "", `domain: {devices: {interfaces: [{name: a, bridge: {}, macAddress: "02:00:00:00:00:01"}]}}, networks: [{name: a, pod: {}}]`)
	if got := OfVM(bridged); len(got) != 1 || !got[0].Shared || got[0].Network != PodNetwork {
		t.Errorf("a bridge on the pod network: %+v", got)
	}
	if OfVM(&v1.VirtualMachine{}) != nil {
		t.Error("a VM without a template has addresses")
	}
}

func TestAdded(t *testing.T) {
	a := Claim{Interface: "a", MAC: "02:00:00:00:00:01", Network: "x/y"}
	moved, renamed := a, a
	moved.Network, renamed.Interface = "x/z", "b"
	for name, tc := range map[string]struct {
		claims, before []Claim
		want           int
	}{
		"new VM":               {[]Claim{a}, nil, 1},
		"unchanged":            {[]Claim{a}, []Claim{a}, 0},
		"on another network":   {[]Claim{moved}, []Claim{a}, 1},
		"at another interface": {[]Claim{renamed}, []Claim{a}, 0},
		"no more":              {nil, []Claim{a}, 0},
	} {
		if got := Added(tc.claims, tc.before); len(got) != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for network, want := range map[string]string{PodNetwork: "on the pod network;", "x/y": "on network x/y;"} {
		a.Network = network
		if got := a.Taken("VM shop/web", "nic"); !strings.Contains(got, "of VM shop/web, interface nic, "+want) {
			t.Error(got)
		}
	}
}
