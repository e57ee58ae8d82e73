package vmcontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

func TestSizeAndRestart(t *testing.T) {
	vm := testVM(v1.RunStrategyAlways)
	domain := &vm.Spec.Template.Spec.Domain
	domain.CPU.Sockets, domain.Memory = 1, &v1.Memory{Guest: new(resource.MustParse("1Gi"))}
	made, err := Instance(vm, false)
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Phase = v1.Running
	for name, tc := range map[string]struct {
		change  func(*v1.DomainSpec)
		refused map[string]string
		// restart is the condition's message; empty is none.
		restart string
	}{
		"sockets": {func(d *v1.DomainSpec) { d.CPU.Sockets = 2 }, nil, ""},
		"memory":  {func(d *v1.DomainSpec) { d.Memory.Guest = new(resource.MustParse("2Gi")) }, nil, ""},
		"cores": {
			func(d *v1.DomainSpec) { d.CPU.Cores, d.CPU.Sockets = 4, 1 }, nil,
			"a non-live-updatable field was changed in the template spec: spec.template.spec.domain.cpu.cores",
		},
		"the bound": {
			func(d *v1.DomainSpec) { d.CPU.MaxSockets = 8 }, nil,
			"a non-live-updatable field was changed in the template spec: spec.template.spec.domain.cpu.maxSockets",
		},
		"beyond a bound": {
			func(d *v1.DomainSpec) { d.CPU.Sockets = 8 },
			map[string]string{sizing.SocketsPath: "too many"},
			"a non-live-updatable field was changed in the template spec: " +
				"spec.template.spec.domain.cpu.sockets (too many)",
		},
	} {
		changed := vm.DeepCopy()
		changed.Generation = 4
		tc.change(&changed.Spec.Template.Spec.Domain)
		got := restartOf(status(t, View{VM: changed, VMI: made, Change: sizing.Change{Refused: tc.refused}}))
		if got != tc.restart {
			t.Errorf("%s: %q, want %q", name, got, tc.restart)
		}
	}

	stuck := made.DeepCopy()
	stuck.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue, Reason: sizing.ReasonRestart,
		Message: "no room.",
	}}
	if got := restartOf(status(t, View{VM: vm, VMI: stuck})); !strings.Contains(got,
		"cannot be given its new size while it runs: no room.") {
		t.Errorf("no room anywhere: %q", got)
	}
}

// A reference whose object makes the same of the VM but for its size changes nothing else; one that is not known does.
func TestSizeByInstancetype(t *testing.T) {
	vm := testVM(v1.RunStrategyAlways)
	vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "small"}
	small := vm.Spec.Template.DeepCopy()
	small.Spec.Domain.CPU = &v1.CPU{Sockets: 1, Cores: 1, Threads: 1}
	made, err := instanceOf(vm, small, false)
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Phase = v1.Running
	vm.Generation, vm.Spec.Instancetype.Name = 4, "large"
	large := small.Spec.DeepCopy()
	large.Domain.CPU.Sockets = 4
	if got := restartOf(status(t, View{VM: vm, VMI: made, Template: large})); got != "" {
		t.Errorf("only larger: %q", got)
	}
	large.Domain.CPU.Model = "other"
	if got := restartOf(status(t, View{VM: vm, VMI: made, Template: large})); !strings.HasSuffix(got,
		"spec.template.spec.domain.cpu.model, spec.template.spec.domain.cpu.sockets") {
		t.Errorf("of another model: %q", got)
	}
	if got := restartOf(status(t, View{VM: vm, VMI: made})); got == "" {
		t.Error("not known, and no restart required")
	}
}

func restartOf(status v1.VirtualMachineStatus) string {
	for _, c := range status.Conditions {
		if c.Type == v1.VirtualMachineRestartRequired {
			return c.Message
		}
	}
	return ""
}
