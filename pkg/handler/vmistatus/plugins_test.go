package vmistatus

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// A binding plugin on the pod network that does not say how to migrate keeps its guest where it is.
func TestPluginStays(t *testing.T) {
	for stays, want := range map[bool]string{false: "", true: v1.VirtualMachineInstanceReasonInterfaceNotMigratable} {
		c := &conditionList{}
		migratable(&v1.VirtualMachineInstance{}, nil,
			&network.Plan{Interfaces: []network.Interface{{Name: "red", Stays: stays}}}, true, c)
		for _, condition := range c.list {
			if condition.Reason != want ||
				stays && !strings.HasPrefix(condition.Message, `interface "red" has a network binding plugin`) {
				t.Errorf("stays %v: %+v", stays, condition)
			}
		}
	}
}
