package create

import (
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/cli"
	"github.com/virtkit/virtkit/pkg/surface"
)

// validate finds what the server would reject before it is asked, with the server's own rules and words. What is
// right but not supported yet is given back: the manifest may be meant for another installation. What an instance
// type or a preference makes of the VM only the server knows.
func validate(vm *v1.VirtualMachine) (unsupported []string, err error) {
	defaulted := vm.DeepCopy()
	surface.DefaultVirtualMachine(defaulted, nil, surface.Defaults{})
	expanded := &defaulted.Spec.Template.Spec
	if defaulted.Spec.Instancetype != nil && expanded.Domain.Memory == nil {
		expanded = expanded.DeepCopy()
		memory := resource.MustParse("1Gi")
		expanded.Domain.Memory = &v1.Memory{Guest: &memory}
	}
	errs := surface.ValidateExpanded(defaulted, expanded, surface.Defaults{})
	wrong := errs[:0:0]
	for _, err := range errs {
		if surface.IsUnsupported(err) {
			unsupported = append(unsupported, err.Field+": "+surface.Detail(err))
		} else {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return nil, cli.UsageErrorf("%s", surface.Message(wrong))
	}
	return unsupported, nil
}
