package createcmd

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// validate finds what the server would reject before it is asked; see create.Check. What is not supported yet is given
// back.
func validate(vm *v1.VirtualMachine) (unsupported []string, err error) {
	wrong, later := create.Check(vm)
	for _, err := range later {
		unsupported = append(unsupported, err.Field+": "+surface.Detail(err))
	}
	if len(wrong) > 0 {
		return nil, cli.UsageErrorf("%s", surface.Message(wrong))
	}
	return unsupported, nil
}
