package snapshots

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Omitted is a volume of a VM that is not in a snapshot of it, and why.
type Omitted struct{ Name, Reason string }

// LeftOut returns the claims of a VM that a snapshot leaves out, as the VM's status has it. Volumes that are made of
// the VM's spec, such as container disks, are none: they are made anew.
func LeftOut(vm *v1.VirtualMachine) []Omitted {
	return slices.DeleteFunc(disabled(vm), Omitted.waits)
}

// Unbound returns the claims of a VM for which a snapshot waits until the VM is started, as the VM's status has it.
func Unbound(vm *v1.VirtualMachine) []Omitted {
	return slices.DeleteFunc(disabled(vm), func(o Omitted) bool { return !o.waits() })
}

// waits reports a volume that is not left out, but waited for.
func (o Omitted) waits() bool { return strings.HasSuffix(o.Reason, boundAtStart) }

// disabled returns the claims of a VM that cannot be snapshotted now.
func disabled(vm *v1.VirtualMachine) []Omitted {
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

// LeftOutText names the claims of a VM that a snapshot leaves out, with their reasons, or returns "" when all can be
// snapshotted.
func LeftOutText(vm *v1.VirtualMachine) string {
	return textOf(vm, "cannot be snapshotted", LeftOut(vm))
}

// UnboundText names the claims of a VM for which a snapshot waits until the VM is started, or returns "" for none.
func UnboundText(vm *v1.VirtualMachine) string {
	return textOf(vm, "cannot be snapshotted yet", Unbound(vm))
}

func textOf(vm *v1.VirtualMachine, what string, volumes []Omitted) string {
	var parts []string
	for _, v := range volumes {
		parts = append(parts, fmt.Sprintf("%s (%s)", v.Name, v.Reason))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("volumes of VM %s/%s that %s: %s", vm.Namespace, vm.Name, what, strings.Join(parts, ", "))
}

// Warnings warn of what a snapshot of a VM, or a clone, will not have, and of what it waits for.
func Warnings(vm *v1.VirtualMachine) (out []string) {
	if text := LeftOutWarning(vm); text != "" {
		out = append(out, text)
	}
	if text := UnboundText(vm); text != "" {
		out = append(out, text+"; the snapshot waits for that until its deadline")
	}
	return out
}

// LeftOutWarning warns of what a snapshot of a VM, or a clone, will not have; "" is for nothing.
func LeftOutWarning(vm *v1.VirtualMachine) string {
	if text := LeftOutText(vm); text != "" {
		return text + "; they are left out"
	}
	return ""
}
