package create

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// Kind is where a volume's content comes from.
type Kind string

// The kinds. Import is a DataVolume, which CDI (the Containerized Data Importer) fills from Volume.Import.
const (
	ContainerDisk Kind = "containerdisk"
	Claim         Kind = "pvc"
	Empty         Kind = "empty"
	Import        Kind = "import"
)

// Volume is one disk of the guest.
type Volume struct {
	Kind Kind
	// Source is the image of a container disk, the name of a claim, the size of an empty disk.
	Source string
	// Import says what a DataVolume is filled with.
	Import DataSource
	// Name is the volume's and disk's; a name is made when it is empty.
	Name string
	// BootOrder is 1 for the first to boot from; 0 leaves the order to the firmware.
	BootOrder uint
	ReadOnly  bool
	// Plain volumes are not asked for an instance type or a preference unless the user wants that.
	Plain bool
	// Field is how errors call the volume; "volume NAME" when it is empty.
	Field string
}

// DiskBuses returns the buses that disks can be on.
func DiskBuses() []string {
	return []string{
		string(v1.DiskBusVirtio), string(v1.DiskBusSATA), string(v1.DiskBusSCSI), string(v1.DiskBusUSB),
	}
}

// chooseBuses puts the disks of volumes on a bus. With none chosen, a disk is on that of the preference, or else on the
// server's default, sata; without a preference an answer file is then on a CD-ROM, where Windows looks for it.
func chooseBuses(vm *v1.VirtualMachine, bus string) error {
	if bus != "" && !slices.Contains(DiskBuses(), bus) {
		return invalid("disk-bus", "%q is not one of %s", bus, strings.Join(DiskBuses(), ", "))
	}
	spec := &vm.Spec.Template.Spec
	for _, volume := range spec.Volumes {
		sysprep := volume.Sysprep != nil && vm.Spec.Preference == nil
		if bus == "" && !sysprep {
			continue
		}
		disks := &spec.Domain.Devices.Disks
		at := slices.IndexFunc(*disks, func(d v1.Disk) bool { return d.Name == volume.Name })
		if at < 0 {
			at = len(*disks)
			*disks = append(*disks, v1.Disk{Name: volume.Name})
		}
		disk := &(*disks)[at]
		switch {
		case sysprep:
			disk.CDRom = &v1.CDRomTarget{Bus: v1.DiskBusSATA}
		case disk.Disk == nil:
			disk.Disk = &v1.DiskTarget{Bus: v1.DiskBus(bus)}
		case disk.Disk.ReadOnly && bus == string(v1.DiskBusSATA):
			return invalid("disk-bus", "sata has no read-only disks, as %s is", volume.Name)
		default:
			disk.Disk.Bus = v1.DiskBus(bus)
		}
	}
	return nil
}

// addVolumes adds the volumes, and a disk for each of which something is to be said.
func addVolumes(vm *v1.VirtualMachine, o Options) error {
	spec := &vm.Spec.Template.Spec
	counts := map[string]int{}
	orders := map[uint]string{}
	for _, v := range o.Volumes {
		if v.Name == "" {
			v.Name = generatedName(o.Name, v, counts[string(v.Kind)+v.Import.Type])
		}
		counts[string(v.Kind)+v.Import.Type]++
		field := v.Field
		if field == "" {
			field = "volume " + v.Name
		}
		source, err := volumeSource(vm, field, v)
		if err != nil {
			return err
		}
		if len(validation.IsDNS1123Label(v.Name)) > 0 {
			return invalid(field, "%q %s", v.Name, label)
		}
		if hotplug.Volume(spec, v.Name) != nil {
			return invalid(field, "another volume has the same name")
		}
		if v.BootOrder > 0 {
			if other, taken := orders[v.BootOrder]; taken {
				return invalid(field, "boot order %d is that of volume %s too", v.BootOrder, other)
			}
			orders[v.BootOrder] = v.Name
		}
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: v.Name, VolumeSource: source})
		if v.BootOrder == 0 && !v.ReadOnly {
			continue
		}
		disk := v1.Disk{Name: v.Name}
		if v.ReadOnly {
			disk.Disk = &v1.DiskTarget{Bus: v1.DiskBusVirtio, ReadOnly: true} // sata has no read-only disks
		}
		if v.BootOrder > 0 {
			order := v.BootOrder
			disk.BootOrder = &order
		}
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, disk)
	}
	inOrder(spec)
	return nil
}

// inOrder gives the volumes before a read-only one a disk in the spec, too, in the order of the volumes: admission adds
// the disks that are missing after those that are there, and firmware boots from the first.
func inOrder(spec *v1.VirtualMachineInstanceSpec) {
	of := func(volume string) *v1.Disk { return hotplug.Disk(spec, volume) }
	last := -1
	for i := range spec.Volumes {
		if d := of(spec.Volumes[i].Name); d != nil && d.Disk != nil && d.Disk.ReadOnly {
			last = i
		}
	}
	if last < 0 {
		return
	}
	var disks []v1.Disk
	for i := range spec.Volumes {
		switch d := of(spec.Volumes[i].Name); {
		case d != nil:
			disks = append(disks, *d)
		case i < last:
			disks = append(disks, v1.Disk{Name: spec.Volumes[i].Name})
		}
	}
	spec.Domain.Devices.Disks = disks
}

func volumeSource(vm *v1.VirtualMachine, field string, v Volume) (v1.VolumeSource, error) {
	var source v1.VolumeSource
	switch v.Kind {
	case ContainerDisk:
		if v.Source == "" {
			return source, invalid(field, "the image is missing")
		}
		source.ContainerDisk = &v1.ContainerDiskSource{Image: v.Source}
	case Claim:
		if namespace, name, both := strings.Cut(v.Source, "/"); both {
			return source, invalid(field, "a claim must be in the VM's own namespace; leave %q out, or clone %s with "+
				"--volume-import type:pvc", namespace+"/", name)
		}
		if errs := validation.IsDNS1123Subdomain(v.Source); len(errs) > 0 {
			return source, invalid(field, "claim name %q: %s", v.Source, errs[0])
		}
		claim := &v1.PersistentVolumeClaimVolumeSource{}
		claim.ClaimName = v.Source
		claim.ReadOnly = v.ReadOnly
		source.PersistentVolumeClaim = claim
	case Empty:
		size, err := quantity(field+" size", v.Source)
		if err != nil {
			return source, err
		}
		source.EmptyDisk = &v1.EmptyDiskSource{Capacity: size}
	case Import:
		template, err := dataVolume(field, v)
		if err != nil {
			return source, err
		}
		vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, template)
		source.DataVolume = &v1.DataVolumeSource{Name: v.Name}
	default:
		return source, invalid(field, "unknown kind %q", v.Kind)
	}
	return source, nil
}

// dataVolume returns the template of the DataVolume that CDI makes for the VM.
func dataVolume(field string, v Volume) (v1.DataVolumeTemplateSpec, error) {
	template := v1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: v.Name}}
	if err := v.Import.fill(field, &template.Spec); err != nil {
		return template, err
	}
	template.Spec.Storage = &cdiv1.StorageSpec{}
	if v.Import.Size == "" {
		if !v.Import.sized() {
			return template, invalid(field, "size is missing")
		}
		return template, nil
	}
	size, err := quantity(field+" size", v.Import.Size)
	if err != nil {
		return template, err
	}
	template.Spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	return template, nil
}

// generatedName returns the name that KubeVirt gives to a volume without one: <vm>-containerdisk-0, the name of a
// claim, <vm>-ds-<source>, <vm>-pvc-<source>; the VM's part is cut where the whole would be over the 63 characters of a
// label.
func generatedName(vm string, v Volume, n int) string {
	suffix := fmt.Sprintf("-%s-%d", v.Kind, n)
	switch {
	case v.Kind == Claim:
		vm, suffix = "", "-"+strings.ReplaceAll(v.Source, ".", "-")
	case v.Kind == Import && (v.Import.Type == "ds" || v.Import.Type == "pvc"):
		_, name, _ := cutLast(v.Import.Source)
		suffix = "-" + v.Import.Type + "-" + strings.ReplaceAll(name, ".", "-")
	case v.Kind == Import:
		suffix = fmt.Sprintf("-%s-%d", v.Import.Type, n)
	}
	vm = strings.ReplaceAll(vm, ".", "-")
	if most := validation.DNS1123LabelMaxLength - len(suffix); len(vm) > most {
		vm = strings.TrimRight(vm[:max(most, 0)], "-")
	}
	return strings.TrimLeft(vm+suffix, "-")
}

// cutLast cuts NAMESPACE/NAME; found says that there is a namespace.
func cutLast(text string) (namespace, name string, found bool) {
	if i := strings.LastIndexByte(text, '/'); i >= 0 {
		return text[:i], text[i+1:], true
	}
	return "", text, false
}

// SysprepVolume is the name of the volume with the answer file, as KubeVirt's.
const SysprepVolume = "sysprepdisk"

// Sysprep names the ConfigMap or Secret with Windows' answer file; none when Name is empty.
type Sysprep struct {
	Name string
	// Type is "configMap", also when empty, or "secret", in any case.
	Type string
}

func addSysprep(spec *v1.VirtualMachineInstanceSpec, s Sysprep) error {
	if s == (Sysprep{}) {
		return nil
	}
	const field = "volume-sysprep"
	if s.Name == "" {
		return invalid(field, "src is missing")
	}
	if errs := validation.IsDNS1123Subdomain(s.Name); len(errs) > 0 {
		return invalid(field, "src %q: %s", s.Name, errs[0])
	}
	if hotplug.Volume(spec, SysprepVolume) != nil {
		return invalid("volume "+SysprepVolume, "the name is the sysprep volume's; give another with name:…")
	}
	source := &v1.SysprepSource{}
	switch strings.ToLower(s.Type) {
	case "", "configmap":
		source.ConfigMap = &corev1.LocalObjectReference{Name: s.Name}
	case "secret":
		source.Secret = &corev1.LocalObjectReference{Name: s.Name}
	default:
		return invalid(field, "type %q is not one of configMap, secret", s.Type)
	}
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: SysprepVolume, VolumeSource: v1.VolumeSource{Sysprep: source}})
	return nil
}
