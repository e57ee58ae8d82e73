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
	// Status is how far plugging it has come; nil when nothing says.
	Status *v1.VolumeStatus
}

// Attachments returns the hotplugged volumes of a machine: those of the instance, then those that only the VM has.
// Either may be nil.
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
	for _, volume := range hotplug.Volumes(running) {
		out = append(out, Attachment{
			Name: volume.Name, Claim: claims.Name(volume), Status: status[volume.Name],
			Instance: hotplug.Volume(template, volume.Name) == nil,
		})
	}
	for _, volume := range hotplug.Volumes(template) {
		if hotplug.Volume(running, volume.Name) == nil {
			out = append(out, Attachment{Name: volume.Name, Claim: claims.Name(volume)})
		}
	}
	return out
}
