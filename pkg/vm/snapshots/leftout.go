package snapshots

import (
	"cmp"
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Omitted is a volume of a VM that is not in a snapshot of it, and why.
type Omitted struct{ Name, Reason string }

// LeftOut returns the claims of a VM that cannot be snapshotted, as the VM's status has it. Volumes that are made of
// the VM's spec, such as container disks, are none: they are made anew.
func LeftOut(vm *v1.VirtualMachine) []Omitted {
	made := map[string]bool{}
	if vm.Spec.Template != nil {
		for i := range vm.Spec.Template.Spec.Volumes {
			volume := &vm.Spec.Template.Spec.Volumes[i]
			made[volume.Name] = !claims.Storage(volume)
		}
	}
	var out []Omitted
	for _, status := range vm.Status.VolumeSnapshotStatuses {
		// What the template does not have is a claim that is plugged in until the next start, or the persistent state.
		if !made[status.Name] && !status.Enabled {
			out = append(out, Omitted{status.Name, cmp.Or(status.Reason, "no reason is given")})
		}
	}
	return out
}

// LeftOutText names the claims of a VM that cannot be snapshotted, with their reasons, or returns "" when all can.
func LeftOutText(vm *v1.VirtualMachine) string {
	var parts []string
	for _, v := range LeftOut(vm) {
		parts = append(parts, fmt.Sprintf("%s (%s)", v.Name, v.Reason))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("volumes of VM %s/%s that cannot be snapshotted: %s", vm.Namespace, vm.Name,
		strings.Join(parts, ", "))
}

// LeftOutWarning warns of what a snapshot of a VM, or a clone, will not have; "" is for nothing.
func LeftOutWarning(vm *v1.VirtualMachine) string {
	if text := LeftOutText(vm); text != "" {
		return text + "; they are left out"
	}
	return ""
}
