package verbosity

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestOf(t *testing.T) {
	kv := &v1.KubeVirt{}
	if got := Of(kv, "virt-api"); got != Default {
		t.Errorf("nothing is said: %d", got)
	}
	kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{
		LogVerbosity: &v1.LogVerbosity{VirtHandler: 7, VirtLauncher: 3},
	}
	for name, want := range map[string]uint{
		"virt-api":      Default,
		"virt-handler":  7,
		"virt-launcher": 3,
		Operator:        Default,
	} {
		if got := Of(kv, name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestOfVM(t *testing.T) {
	kv := &v1.KubeVirt{}
	kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{
		LogVerbosity: &v1.LogVerbosity{VirtLauncher: 3},
	}
	vm := func(level string) *v1.VirtualMachine {
		out := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}
		out.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		if level != "" {
			out.Spec.Template.ObjectMeta.Labels = map[string]string{Label: level}
		}
		return out
	}
	vmi := func(level string) *v1.VirtualMachineInstance {
		out := &v1.VirtualMachineInstance{}
		if level != "" {
			out.Labels = map[string]string{Label: level}
		}
		return out
	}
	five := uint(5)
	for name, test := range map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want Level
	}{
		"as all":             {vm(""), vmi(""), Level{Name: "vm", Level: 3}},
		"own":                {vm("5"), vmi("5"), Level{Name: "vm", Level: 5}},
		"own, stopped":       {vm("5"), nil, Level{Name: "vm", Level: 5}},
		"from the next on":   {vm("5"), vmi(""), Level{Name: "vm", Level: 3, AfterRestart: &five}},
		"nonsense":           {vm("loud"), nil, Level{Name: "vm", Level: 3}},
		"more than there is": {vm("10"), nil, Level{Name: "vm", Level: 9}},
	} {
		if got := OfVM(kv, test.vm, test.vmi); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestPatchOfUnknown(t *testing.T) {
	if _, err := (Change{Set: map[string]uint{"virt-exporter": 3}}).Patch(); err == nil {
		t.Error("no error")
	}
}
