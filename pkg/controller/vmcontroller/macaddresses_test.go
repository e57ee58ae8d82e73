package vmcontroller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// record has a VM's MAC addresses recorded, as virt-controller has done before.
func (w *world) record(macs map[string]string) {
	w.t.Helper()
	text, err := macaddress.Encode(w.VM.Namespace, w.VM.Name, macs)
	if err != nil {
		w.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&w.VM.ObjectMeta, macaddress.Annotation, text)
}

// guestHas has the guest's interface red have an address.
func (w *world) guestHas(mac string) {
	w.VMI.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "red", MAC: mac}}
}

// bridged is a VMI whose guest has an address on a network of Multus, made so many seconds after now.
func bridged(namespace, name, network, mac string, after int) v1.VirtualMachineInstance {
	vmi := v1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name = namespace, name
	vmi.CreationTimestamp = at(-time.Duration(after) * time.Second)
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "nic", MacAddress: mac,
		InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
	}}
	vmi.Spec.Networks = []v1.Network{{
		Name: "nic", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: network}},
	}}
	return vmi
}

// Which VMs may not have an address that another's guest has: all that are to start, and of two guests the later one.
func TestClash(t *testing.T) {
	const mac = "02:00:00:00:00:01"
	of := func(name string, after int) v1.VirtualMachineInstance {
		return bridged("default", name, "net", mac, after)
	}
	owned := of("web-vmi", 1)
	owned.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
	}, v1.VirtualMachineGroupVersionKind)}
	mine, earlier, later, twin := of("demo", 2), of("a", 1), of("z", 3), of("a", 2)
	for name, tc := range map[string]struct {
		mine, other *v1.VirtualMachineInstance
		want        string
	}{
		"to start, another runs":      {nil, &later, "VirtualMachineInstance default/z, interface nic"},
		"to start, a VM's":            {nil, &owned, "VM default/web, interface nic"},
		"to start, its own is there":  {nil, &mine, ""},
		"runs, another was earlier":   {&mine, &earlier, "default/a"},
		"runs, another came later":    {&mine, &later, ""},
		"runs, another at that time":  {&mine, &twin, "default/a"},
		"was the first of that time":  {&twin, &mine, ""},
		"runs, and there is no other": {&mine, &mine, ""},
	} {
		vm := testVM(v1.RunStrategyAlways)
		if tc.mine == &twin {
			vm.Name = twin.Name
		}
		claim := macsOf(tc.other)[0]
		got := clash(&View{VM: vm, VMI: tc.mine}, &claim, []v1.VirtualMachineInstance{*tc.other}, macsOf)
		if got != tc.want && (tc.want == "" || !strings.Contains(got, tc.want)) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// The index has what others on the network receive: nothing of masquerade, and nothing of guests that have ended.
func TestSharedMACs(t *testing.T) {
	vmi := bridged("default", "demo", "net", "02:00:00:00:00:01", 0)
	vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{
		Name: "pod", MacAddress: "02:00:00:00:00:02",
		InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	})
	vmi.Spec.Networks = append(vmi.Spec.Networks, *v1.DefaultPodNetwork())
	if got := sharedMACs(&vmi); !slices.Equal(got, []string{"02:00:00:00:00:01 default/net"}) {
		t.Errorf("%q", got)
	}
	vmi.Status.Phase = v1.Failed
	if got := sharedMACs(&vmi); len(got) > 0 {
		t.Errorf("ended: %q", got)
	}
}

// A VM keeps its MAC addresses for its whole life: those of its first VMI are those of the next, whatever has become of
// its annotation meanwhile.
func TestMACsStay(t *testing.T) {
	w := newWorld(t, v1.RunStrategyAlways)
	first := macaddress.Recorded(w.VMI)
	if len(first) != 1 || first["red"] == "" {
		t.Fatalf("the VMI has %v", first)
	}
	w.run()
	if again := macaddress.Recorded(w.VMI); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("then %v, first %v", again, first)
	}
	w.guestHas("5a:00:00:00:00:01") // the CNI plugin's
	step := Next(w.View)
	metav1.SetMetaDataAnnotation(&w.VM.ObjectMeta, macaddress.Annotation, step.MACs)
	w.run()
	if again := macaddress.Recorded(w.VMI); again["red"] != "5a:00:00:00:00:01" {
		t.Errorf("after a start with the CNI plugin's: %v", again)
	}
	if step := Next(w.View); step.MACs != "" {
		t.Errorf("is recorded again: %s", step.MACs)
	}
}
