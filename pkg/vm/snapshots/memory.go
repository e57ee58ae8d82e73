package snapshots

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// WithMemory is the indication that the snapshot has the guest's memory, too.
const WithMemory v1beta1.Indication = "Memory"

// WantsMemory reports a snapshot that is to have the guest's memory.
func WantsMemory(snapshot *v1beta1.VirtualMachineSnapshot) bool {
	return snapshot.Annotations[savedmemory.IncludeAnnotation] == "true"
}

// The beginnings of what MemoryTrouble says: of a reason that stays until somebody changes the VM, and of one that may
// pass.
const (
	noMemory    = "its memory cannot be in the snapshot: "
	noMemoryYet = "its memory cannot be in the snapshot yet: "
)

// MemoryTrouble returns why a snapshot with these volumes cannot have the memory of a VM's guest, or "" when it can.
// vmi is nil for none. A guest that goes on from its memory takes its disks to be as they were: all that it can write
// must be in the snapshot.
func MemoryTrouble(vmi *v1.VirtualMachineInstance, volumes []Volume) string {
	if !life.Running(vmi) {
		return noMemoryYet + "the guest does not run"
	}
	if reason := neverMemory(vmi, volumes); reason != "" {
		return noMemory + reason
	}
	switch {
	case migrations.UnderWay(vmi):
		return noMemoryYet + "the guest is moving to another node"
	case conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstancePaused):
		return noMemoryYet + "the guest is paused; unpause it first"
	}
	return ""
}

// MemoryNever reports whether a text contains MemoryTrouble's answer for a VM for which waiting changes nothing.
func MemoryNever(text string) bool { return strings.Contains(text, noMemory) }

// MemoryReason reports a text that MemoryTrouble has said.
func MemoryReason(text string) bool {
	return strings.HasPrefix(text, noMemory) || strings.HasPrefix(text, noMemoryYet)
}

// ResumeTrouble returns why the guest of a VM must not go on from the memory that mark names, or "" when it may. The
// restore must be the last one of the VM, and its volumes must be on the claims that the restore made: a guest that
// goes on with other disks destroys what is on them. found are the existing claims of the VM's volumes and of the
// memory, by name.
func ResumeTrouble(
	vm *v1.VirtualMachine, mark *savedmemory.Resume, found map[string]*corev1.PersistentVolumeClaim,
) string {
	if !strings.HasSuffix(vm.Annotations[LastAnnotation], "-"+string(mark.Restore)) {
		return "the restore that it is of is not the VM's last one"
	}
	if found[mark.Claim] == nil {
		return "the claim does not exist any more: its snapshot was deleted"
	}
	for _, name := range slices.Sorted(maps.Keys(mark.Disks)) {
		claim := ""
		if volume := hotplug.Volume(&vm.Spec.Template.Spec, name); volume != nil {
			claim = Claim(volume)
		}
		switch {
		case claim == "":
			return fmt.Sprintf("volume %s, which the guest has a disk of, is not on a claim any more", name)
		case found[claim] == nil:
			return fmt.Sprintf("claim %s of volume %s does not exist", claim, name)
		case found[claim].UID != mark.Disks[name]:
			return fmt.Sprintf("claim %s of volume %s is not the one that the restore made", claim, name)
		}
	}
	return ""
}

// neverMemory returns why no snapshot of the guest, as it was started, can have its memory.
func neverMemory(vmi *v1.VirtualMachineInstance, volumes []Volume) string {
	devices := &vmi.Spec.Domain.Devices
	switch {
	case len(devices.HostDevices) > 0 || len(devices.GPUs) > 0:
		return "the guest has devices of its host, whose state is not in memory"
	case len(devices.Filesystems) > 0:
		return "the guest shares file systems with its host, whose state is not in memory"
	case passthrough.VSOCK(&vmi.Spec):
		return "the guest has a vsock, whose address changes with each start"
	case vmi.Spec.Domain.LaunchSecurity != nil:
		return "the guest's memory is encrypted"
	}
	for i := range devices.Interfaces {
		if devices.Interfaces[i].SRIOV != nil {
			return fmt.Sprintf("interface %s is a device of the host, whose state is not in memory",
				devices.Interfaces[i].Name)
		}
	}
	for i := range vmi.Status.VolumeStatus {
		status := &vmi.Status.VolumeStatus[i]
		if status.HotplugVolume != nil && !takesMemory(vmi, status) {
			return fmt.Sprintf("volume %s was plugged in while the guest ran; unplug it, or make it one of the "+
				"template's that is not hotpluggable", status.Name)
		}
	}
	for i := range devices.Disks {
		if reason := memoryDisk(vmi, &devices.Disks[i], volumes); reason != "" {
			return reason
		}
	}
	return ""
}

// takesMemory reports a volume to which the guest's memory is written, for a dump or another snapshot, also while it is
// being unplugged. It is no disk: the guest cannot write it.
func takesMemory(vmi *v1.VirtualMachineInstance, status *v1.VolumeStatus) bool {
	volume := hotplug.Volume(&vmi.Spec, status.Name)
	if volume == nil {
		return status.MemoryDumpVolume != nil || savedmemory.IsVolume(status.Name) && status.Target == ""
	}
	return volume.MemoryDump != nil
}

// memoryDisk returns why a disk keeps the guest's memory out of a snapshot.
func memoryDisk(vmi *v1.VirtualMachineInstance, disk *v1.Disk, volumes []Volume) string {
	volume := hotplug.Volume(&vmi.Spec, disk.Name)
	if disk.CDRom != nil || volume == nil || disk.Disk != nil && disk.Disk.ReadOnly || claims.Configuration(volume) {
		return ""
	}
	at := slices.IndexFunc(volumes, func(v Volume) bool { return v.Name == disk.Name })
	switch {
	case at < 0 || volumes[at].Claim == "":
		return fmt.Sprintf("disk %s is lost when the guest stops; put it on a claim", disk.Name)
	case volumes[at].Reason != "":
		return fmt.Sprintf("volume %s is not in it: %s", disk.Name, volumes[at].Reason)
	}
	return ""
}
