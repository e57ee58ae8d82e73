package describe

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/qos"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Disk is one volume of a machine with its device, or a CD-ROM drive without a disc.
type Disk struct {
	Name string
	// Source is what it is: "containerDisk IMAGE", "persistentVolumeClaim NAME", "empty"; of a volume that moves to
	// another claim "persistentVolumeClaim NEW, copied from OLD".
	Source string
	// Device is kind and bus: "disk virtio"; empty where none is said.
	Device string
	// Target is libvirt's name of it, vda, and not the guest's, which names its disks as it finds them. Phase is how
	// far plugging it has come. Both are empty where that is not known.
	Target, Phase string
	// Serial is its serial number, by which the guest finds it: /dev/disk/by-id/*SERIAL. Empty where the spec says
	// none.
	Serial string
	// Size is empty where it is not known: 10Gi.
	Size string
	// Limits are its rate limits, as the annotation has them; empty without any.
	Limits string
	// Hotplug is whether it came after the guest's start.
	Hotplug bool
}

// Disks returns those of the instance, or without one those of the VM's template. Either may be nil.
func Disks(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) []Disk {
	var spec *v1.VirtualMachineInstanceSpec
	var limits map[string]qos.Disk
	status, from := map[string]v1.VolumeStatus{}, map[string]string{}
	switch {
	case vmi != nil:
		spec, limits = &vmi.Spec, qos.Of(vmi.Annotations).Disks
		for _, s := range vmi.Status.VolumeStatus {
			status[s.Name] = s
		}
		for _, m := range volumemigration.Moves(vmi) {
			from[m.Volume] = ", copied from " + m.From
		}
	case vm != nil && vm.Spec.Template != nil:
		spec, limits = &vm.Spec.Template.Spec, qos.Of(vm.Spec.Template.ObjectMeta.Annotations).Disks
	default:
		return nil
	}
	devices, serials := map[string]string{}, map[string]string{}
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		devices[d.Name], serials[d.Name] = device(d), d.Serial
	}
	for i := range spec.Domain.Devices.Filesystems {
		devices[spec.Domain.Devices.Filesystems[i].Name] = "filesystem virtiofs"
	}
	var out []Disk
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		s := status[v.Name]
		out = append(out, Disk{
			Name: v.Name, Source: source(v) + from[v.Name], Device: devices[v.Name], Target: s.Target, Phase: Phase(&s),
			Serial: serials[v.Name], Size: size(v, &s), Limits: limits[v.Name].String(),
			Hotplug: s.HotplugVolume != nil || hotpluggable(v),
		})
	}
	if vmi != nil {
		for _, s := range claims.Leaving(vmi) {
			out = append(out, Disk{
				Name: s.Name, Source: "persistentVolumeClaim " + claims.OfStatus(s), Target: s.Target, Phase: Phase(s),
				Size: size(&v1.Volume{}, s), Hotplug: true,
			})
		}
	}
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		if d.CDRom != nil && !slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == d.Name }) {
			out = append(out, Disk{Name: d.Name, Source: "empty", Device: device(d), Serial: d.Serial})
		}
	}
	return out
}

// Phase returns a volume's phase, with the reason where it does not get further.
func Phase(s *v1.VolumeStatus) string {
	if hotplug.Stuck(s) {
		return fmt.Sprintf("%s (%s)", s.Phase, s.Reason)
	}
	return string(s.Phase)
}

func device(d *v1.Disk) string {
	switch {
	case d.Disk != nil:
		return "disk " + string(d.Disk.Bus)
	case d.CDRom != nil:
		return "cdrom " + string(d.CDRom.Bus)
	case d.LUN != nil:
		return "lun " + string(d.LUN.Bus)
	}
	return ""
}

func hotpluggable(v *v1.Volume) bool {
	return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable ||
		v.DataVolume != nil && v.DataVolume.Hotpluggable
}

func size(v *v1.Volume, s *v1.VolumeStatus) string {
	switch info := s.PersistentVolumeClaimInfo; {
	case s.Size > 0:
		return resource.NewQuantity(s.Size, resource.BinarySI).String()
	case info != nil:
		if q, ok := info.Capacity["storage"]; ok {
			return q.String()
		}
	case v.EmptyDisk != nil:
		return v.EmptyDisk.Capacity.String()
	}
	return ""
}

func source(v *v1.Volume) string {
	switch {
	case v.ContainerDisk != nil:
		return "containerDisk " + v.ContainerDisk.Image
	case v.PersistentVolumeClaim != nil:
		return "persistentVolumeClaim " + v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return "dataVolume " + v.DataVolume.Name
	case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
		return "ephemeral " + v.Ephemeral.PersistentVolumeClaim.ClaimName
	case v.EmptyDisk != nil:
		return "emptyDisk " + v.EmptyDisk.Capacity.String()
	case v.CloudInitNoCloud != nil:
		return "cloudInitNoCloud"
	case v.CloudInitConfigDrive != nil:
		return "cloudInitConfigDrive"
	case v.Sysprep != nil:
		return "sysprep"
	case v.ConfigMap != nil:
		return "configMap " + v.ConfigMap.Name
	case v.Secret != nil:
		return "secret " + v.Secret.SecretName
	case v.ServiceAccount != nil:
		return "serviceAccount " + v.ServiceAccount.ServiceAccountName
	case v.HostDisk != nil:
		return "hostDisk " + v.HostDisk.Path
	case v.DownwardAPI != nil:
		return "downwardAPI"
	case v.MemoryDump != nil:
		return "memoryDump " + v.MemoryDump.ClaimName
	case v.DownwardMetrics != nil:
		return "downwardMetrics"
	}
	return "other"
}
