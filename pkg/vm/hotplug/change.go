package hotplug

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// ErrConflict marks requests that the spec as it is does not allow.
var ErrConflict = errors.New("conflict")

type conflictError struct{ text string }

func (e conflictError) Error() string      { return e.text }
func (conflictError) Is(target error) bool { return target == ErrConflict }

func conflict(format string, args ...any) error {
	return conflictError{fmt.Sprintf(format, args...)}
}

// Check returns what is wrong with a request by itself.
func Check(options *v1.AddVolumeOptions) error {
	source := options.VolumeSource
	switch {
	case options.Name == "":
		return errors.New("AddVolumeOptions requires name to be set")
	case options.Disk == nil:
		return errors.New("AddVolumeOptions requires disk to not be nil")
	case source == nil || source.PersistentVolumeClaim == nil && source.DataVolume == nil:
		return errors.New("AddVolumeOptions requires VolumeSource to not be nil; set " +
			"volumeSource.persistentVolumeClaim.claimName or volumeSource.dataVolume.name")
	case source.PersistentVolumeClaim != nil && source.DataVolume != nil:
		return errors.New("volumeSource has both persistentVolumeClaim and dataVolume; keep one")
	case source.DataVolume != nil && source.DataVolume.Name == "":
		return errors.New("volumeSource.dataVolume.name is not set")
	case source.PersistentVolumeClaim != nil && source.PersistentVolumeClaim.ClaimName == "":
		return errors.New("volumeSource.persistentVolumeClaim.claimName is not set")
	}
	return nil
}

// DefaultBus is the bus of a hotplugged disk whose request names none; KubeVirt's.
const DefaultBus = v1.DiskBusSCSI

// entry returns the volume and the disk that a request asks for, with all defaults.
func entry(options *v1.AddVolumeOptions) (v1.Volume, v1.Disk) {
	disk := *options.Disk.DeepCopy()
	disk.Name = options.Name
	if disk.Disk == nil && disk.CDRom == nil && disk.LUN == nil {
		disk.Disk = &v1.DiskTarget{}
	}
	if disk.Disk != nil && disk.Disk.Bus == "" {
		disk.Disk.Bus = DefaultBus
	}
	if cd := disk.CDRom; cd != nil {
		if cd.Bus == "" {
			cd.Bus = DefaultBus
		}
		if cd.ReadOnly == nil {
			readOnly := true
			cd.ReadOnly = &readOnly
		}
		if cd.Tray == "" {
			cd.Tray = v1.TrayStateClosed
		}
	}
	volume := v1.Volume{Name: options.Name}
	if source := options.VolumeSource.DataVolume; source != nil {
		volume.DataVolume = source.DeepCopy()
		volume.DataVolume.Hotpluggable = true
	} else {
		volume.PersistentVolumeClaim = options.VolumeSource.PersistentVolumeClaim.DeepCopy()
		volume.PersistentVolumeClaim.Hotpluggable = true
	}
	return volume, disk
}

// Add puts a volume and its disk into a spec. The errors are Check's, and ErrConflict when the spec has the name or the
// claim already.
func Add(spec *v1.VirtualMachineInstanceSpec, options *v1.AddVolumeOptions) error {
	if err := Check(options); err != nil {
		return err
	}
	volume, disk := entry(options)
	if Volume(spec, volume.Name) != nil {
		return conflict("Unable to add volume [%s] because volume with that name already exists", volume.Name)
	}
	if Disk(spec, volume.Name) != nil {
		return conflict("Unable to add disk [%s] because disk with that name already exists", volume.Name)
	}
	name := claims.Name(&volume)
	for i := range spec.Volumes {
		if claims.Name(&spec.Volumes[i]) == name {
			return conflict("Unable to add volume source [%s] because it already exists", name)
		}
	}
	spec.Volumes = append(spec.Volumes, volume)
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, disk)
	return nil
}

// Remove takes a hotplugged volume and its disk out of a spec; a CD-ROM drive that cannot leave a guest stays, empty.
// The error is ErrConflict when there is no such volume, or it is not one that was plugged in.
func Remove(spec *v1.VirtualMachineInstanceSpec, name string) error {
	volume := Volume(spec, name)
	if volume == nil {
		return conflict("Unable to remove volume [%s] because it does not exist", name)
	}
	if !Is(volume) {
		return conflict("Unable to remove volume [%s] because it is not hotpluggable", name)
	}
	left := keep(spec, func(other string) bool { return other != name })
	spec.Volumes = left.Volumes
	if disk := Disk(spec, name); disk == nil || disk.CDRom == nil || Pluggable(disk) {
		spec.Domain.Devices.Disks = left.Domain.Devices.Disks
	}
	return nil
}

// AddBegun returns a template as it was before a volume was added to it, where its VMI has yet to get that volume:
// a request was cut short between the two. It is nil where the template has another volume of the name, or none, and
// where the VMI has it, or lost it to somebody who wants it back at the next start only.
func AddBegun(
	template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance, options *v1.AddVolumeOptions,
) *v1.VirtualMachineInstanceSpec {
	volume, disk := entry(options)
	there, its := Volume(template, volume.Name), Disk(template, volume.Name)
	if there == nil || its == nil || !equality.Semantic.DeepEqual(*there, volume) ||
		!equality.Semantic.DeepEqual(*its, disk) || Volume(&vmi.Spec, volume.Name) != nil ||
		Declared(vmi.Annotations)[volume.Name] {
		return nil
	}
	return keep(template, func(name string) bool { return name != volume.Name })
}

// RemoveBegun returns a template as it was before a volume was removed from it, where its VMI has yet to lose that
// volume. It is nil where the template has the volume, and where the VMI has none or one of its own.
func RemoveBegun(
	template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance, name string,
) *v1.VirtualMachineInstanceSpec {
	left := Volume(&vmi.Spec, name)
	if Volume(template, name) != nil || left == nil || !Is(left) || !Declared(vmi.Annotations)[name] {
		return nil
	}
	before := template.DeepCopy()
	before.Volumes = append(before.Volumes, *left.DeepCopy())
	return before
}
