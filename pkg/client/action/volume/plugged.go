package volume

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// Attachment is a volume that was plugged into a machine, or will be when that starts.
type Attachment struct {
	// Name is the volume's in the spec, Claim the PersistentVolumeClaim that it is.
	Name, Claim string
	// Instance is whether the running instance alone has it, so that it is gone with the next restart.
	Instance bool
	// Bus is that of its disk, and Serial the disk's serial number, by which the guest finds it. Empty where the spec
	// says none.
	Bus, Serial string
	// Leaving is whether the volume was unplugged, and the guest has not let go of it.
	Leaving bool
	// Status is how far plugging it has come; nil when nothing says.
	Status *v1.VolumeStatus
}

// Attachments returns the hotplugged volumes of a machine: those of the instance, those that are on their way out of
// it, then those that only the VM has. Either may be nil.
func Attachments(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) []Attachment {
	var out []Attachment
	template := &v1.VirtualMachineInstanceSpec{}
	if vm != nil && vm.Spec.Template != nil {
		template = &vm.Spec.Template.Spec
	}
	running := &v1.VirtualMachineInstanceSpec{}
	status := map[string]*v1.VolumeStatus{}
	if vmi != nil {
		running = &vmi.Spec
		for i := range vmi.Status.VolumeStatus {
			status[vmi.Status.VolumeStatus[i].Name] = &vmi.Status.VolumeStatus[i]
		}
	}
	add := func(spec *v1.VirtualMachineInstanceSpec, a Attachment) {
		for i := range spec.Domain.Devices.Disks {
			if d := &spec.Domain.Devices.Disks[i]; d.Name == a.Name {
				a.Bus, a.Serial = bus(d), d.Serial
			}
		}
		out = append(out, a)
	}
	for _, volume := range hotplug.Volumes(running) {
		add(running, Attachment{
			Name: volume.Name, Claim: claims.Name(volume), Status: status[volume.Name],
			Instance: hotplug.Volume(template, volume.Name) == nil,
		})
	}
	if vmi != nil {
		for _, s := range claims.Leaving(vmi) {
			out = append(out, Attachment{Name: s.Name, Claim: claims.OfStatus(s), Leaving: true, Status: s})
		}
	}
	for _, volume := range hotplug.Volumes(template) {
		if hotplug.Volume(running, volume.Name) == nil {
			add(template, Attachment{Name: volume.Name, Claim: claims.Name(volume)})
		}
	}
	return out
}

func bus(d *v1.Disk) string {
	switch {
	case d.Disk != nil:
		return string(d.Disk.Bus)
	case d.CDRom != nil:
		return string(d.CDRom.Bus)
	case d.LUN != nil:
		return string(d.LUN.Bus)
	}
	return ""
}
