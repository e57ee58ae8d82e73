package vmistatus

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// mustMove sets the condition that the guest has to move to another pod for all of its VMI to take effect: for the
// links of interfaces that were added while it ran, which its pod lacks, and of those that are to be on another network
// than its pod connects them to. Type and reason are KubeVirt's.
func mustMove(in Input, c *conditionList) {
	if in.Pod == nil || in.Plan == nil {
		return // what was known stays
	}
	links := in.Guest.GetInterfaceLinks()
	has := func(name string) bool { _, there := links[name]; return there }
	_, elsewhere := network.Lacking(in.VMI, in.Plan, in.Pod.Annotations, has)
	moved := network.Moved(in.VMI, in.Pod.Annotations, has)
	var says []string
	if len(elsewhere) > 0 {
		says = append(says, fmt.Sprintf("gets its new interface %s", strings.Join(elsewhere, ", ")))
	}
	if len(moved) > 0 {
		says = append(says, fmt.Sprintf("has its interface %s on its new network", strings.Join(moved, ", ")))
	}
	if len(says) == 0 {
		c.remove(v1.VirtualMachineInstanceMigrationRequired)
		return
	}
	c.set(v1.VirtualMachineInstanceMigrationRequired, corev1.ConditionTrue,
		v1.VirtualMachineInstanceReasonAutoMigrationDueToLiveUpdate,
		fmt.Sprintf("The guest %s in another pod: it has to migrate, or to be restarted.", strings.Join(says, " and ")))
}
