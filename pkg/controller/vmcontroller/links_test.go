package vmcontroller

import (
	"slices"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestRelink(t *testing.T) {
	of := func(states ...v1.InterfaceState) *v1.VirtualMachineInstanceSpec {
		spec := &v1.VirtualMachineInstanceSpec{}
		for i, s := range states {
			spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces,
				v1.Interface{Name: string(rune('a' + i)), State: s})
		}
		return spec
	}
	const up, down, gone = v1.InterfaceStateLinkUp, v1.InterfaceStateLinkDown, v1.InterfaceStateAbsent
	for name, tc := range map[string]struct {
		template, instance, after *v1.VirtualMachineInstanceSpec
	}{
		"same":       {of("", up, down), of(up, "", down), of(up, "", down)},
		"down":       {of("", down), of("", ""), of("", down)},
		"up":         {of("", ""), of("", down), of("", up)},
		"unplugged":  {of("", gone), of("", down), of("", gone)},
		"comes back": {of("", up), of("", gone), of("", gone)},
		"another":    {of("", "", ""), of("", ""), of("", "")},
		"one less":   {of(""), of("", down), of("", down)},
	} {
		got := tc.instance.DeepCopy()
		changed := relink(tc.template, got, func(string) bool { return true })
		var states, want []v1.InterfaceState
		for i, nic := range got.Domain.Devices.Interfaces {
			states, want = append(states, nic.State), append(want, tc.after.Domain.Devices.Interfaces[i].State)
		}
		if !slices.Equal(states, want) ||
			changed != !slices.EqualFunc(tc.instance.Domain.Devices.Interfaces, got.Domain.Devices.Interfaces,
				func(a, b v1.Interface) bool { return a.State == b.State }) {
			t.Errorf("%s: %q, changed %v", name, states, changed)
		}
	}
}

// TestLinksAndRestart: a state that the guest can have while it runs needs no restart, one that it cannot does.
func TestLinksAndRestart(t *testing.T) {
	vm := testVM(v1.RunStrategyAlways)
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "red"}}
	made, err := Instance(vm, false)
	if err != nil {
		t.Fatal(err)
	}
	vm = vm.DeepCopy()
	vm.Generation++
	for _, s := range []v1.InterfaceState{v1.InterfaceStateLinkDown, v1.InterfaceStateAbsent, v1.InterfaceStateLinkUp} {
		vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].State = s
		if got := status(t, View{VM: vm, VMI: made}); conditionsOf(got)["RestartRequired"] != "" {
			t.Errorf("%s: %s", s, conditionsOf(got)["RestartRequired"])
		}
	}
	made.Spec.Domain.Devices.Interfaces[0].State = v1.InterfaceStateAbsent
	if got := status(t, View{VM: vm, VMI: made}); conditionsOf(got)["RestartRequired"] == "" {
		t.Error("an interface of no network comes back")
	}
}
