package create

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/cli"
	"github.com/virtkit/virtkit/pkg/surface"
)

// validate finds what the server would reject before it is asked, with the server's own rules and words.
func validate(vm *v1.VirtualMachine) error {
	defaulted := vm.DeepCopy()
	surface.DefaultVirtualMachine(defaulted, nil, surface.Defaults{})
	if errs := surface.ValidateVirtualMachine(defaulted, surface.Defaults{}); len(errs) > 0 {
		return cli.UsageErrorf("%s", surface.Message(errs))
	}
	return nil
}
