package snapshot

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// CheckMemory returns MemoryTrouble as the error of --memory.
func CheckMemory(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) error {
	if !life.Running(vmi) {
		state := string(vm.Status.PrintableStatus)
		if vmi != nil && vmi.DeletionTimestamp == nil {
			state = string(vmi.Status.Phase)
		}
		return fmt.Errorf("--memory: the guest of %s/%s does not run (%s); start it, or leave --memory out",
			vm.Namespace, vm.Name, state)
	}
	trouble := MemoryTrouble(vm, vmi)
	if trouble == "" {
		return nil
	}
	return fmt.Errorf("--memory of VM %s/%s: %s (a snapshot without --memory can be taken)", vm.Namespace, vm.Name,
		trouble)
}

// MemoryTrouble returns why the memory of a VM's guest cannot be in a snapshot, in virt-controller's words, or "" when
// it can. vmi is nil for none. A migration is no reason: virt-controller waits for its end.
func MemoryTrouble(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) string {
	volumes := vmsnapshots.Volumes(vm, vmi, vmsnapshots.Facts{})
	for i := range volumes {
		if volumes[i].Claim == "" {
			continue
		}
		volumes[i].Reason = "" // the VM's status knows of the claims
		at := slices.IndexFunc(vm.Status.VolumeSnapshotStatuses,
			func(s v1.VolumeSnapshotStatus) bool { return s.Name == volumes[i].Name })
		if at >= 0 && !vm.Status.VolumeSnapshotStatuses[at].Enabled {
			volumes[i].Reason = vm.Status.VolumeSnapshotStatuses[at].Reason
		}
	}
	trouble := vmsnapshots.MemoryTrouble(vmi, volumes)
	if trouble == "" || vmi != nil && migrations.UnderWay(vmi) && !vmsnapshots.MemoryNever(trouble) {
		return ""
	}
	return trouble
}
