package qos

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Check returns why an annotation is refused for a guest of spec, which has its defaults; nil for another annotation
// than those of limits.
func Check(key, text string, spec *v1.VirtualMachineInstanceSpec) error {
	if name, ok := strings.CutPrefix(key, DiskPrefix); ok {
		if err := checkDisk(name, spec); err != nil {
			return err
		}
		_, err := ParseDisk(text)
		return err
	}
	name, ok := strings.CutPrefix(key, InterfacePrefix)
	if !ok {
		return nil
	}
	if err := checkInterface(name, spec); err != nil {
		return err
	}
	_, err := ParseInterface(text)
	return err
}

func checkDisk(name string, spec *v1.VirtualMachineInstanceSpec) error {
	devices := &spec.Domain.Devices
	var limited []string
	for i := range devices.Disks {
		d := &devices.Disks[i]
		switch {
		case d.Name != name && bounded(d):
			limited = append(limited, d.Name)
		case d.Name != name:
		case d.CDRom != nil:
			return fmt.Errorf("%q is a CD-ROM drive, and only disks have limits; remove the annotation", name)
		case d.LUN != nil:
			return fmt.Errorf("%q is a lun, whose SCSI commands go past QEMU's limits; make it a disk, or remove the "+
				"annotation", name)
		default:
			return nil
		}
	}
	if slices.ContainsFunc(devices.Filesystems, func(f v1.Filesystem) bool { return f.Name == name }) {
		return fmt.Errorf("%q is a file system that is shared with the guest, and only disks have limits; remove the "+
			"annotation", name)
	}
	return missing("disk", name, limited)
}

func bounded(d *v1.Disk) bool { return d.CDRom == nil && d.LUN == nil }

func checkInterface(name string, spec *v1.VirtualMachineInstanceSpec) error {
	var limited []string
	for i := range spec.Domain.Devices.Interfaces {
		nic := &spec.Domain.Devices.Interfaces[i]
		switch {
		case nic.Name != name && shaped(nic):
			limited = append(limited, nic.Name)
		case nic.Name != name:
		case nic.SRIOV != nil:
			return fmt.Errorf("%q is a function of the node's network card, which the guest drives itself; limit it "+
				"by its NetworkAttachmentDefinition (maxTxRate), or remove the annotation", name)
		case nic.Binding != nil:
			return fmt.Errorf("%q belongs to the network binding plugin %q, which alone can limit it; remove the "+
				"annotation", name, nic.Binding.Name)
		default:
			return nil
		}
	}
	return missing("interface", name, limited)
}

func shaped(nic *v1.Interface) bool { return nic.SRIOV == nil && nic.Binding == nil }

func missing(kind, name string, there []string) error {
	if len(there) == 0 {
		return fmt.Errorf("no %s is named %q; remove the annotation", kind, name)
	}
	return fmt.Errorf("no %s is named %q; name one that there is (%s), or remove the annotation", kind, name,
		strings.Join(there, ", "))
}

// Device reports whether a spec has the disk or interface that an annotation is about. Volumes for which a spec lists
// no disk count, since a VMI has disks for them, and so does the interface of a spec that lists none.
func Device(key string, spec *v1.VirtualMachineInstanceSpec) bool {
	devices := &spec.Domain.Devices
	if name, ok := strings.CutPrefix(key, DiskPrefix); ok {
		return slices.ContainsFunc(devices.Disks, func(d v1.Disk) bool { return d.Name == name }) ||
			slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	}
	name, _ := strings.CutPrefix(key, InterfacePrefix)
	if len(devices.Interfaces) == 0 {
		return name == v1.DefaultPodNetwork().Name
	}
	return slices.ContainsFunc(devices.Interfaces, func(nic v1.Interface) bool { return nic.Name == name })
}

// Follow returns the annotations that a VMI is to have so that its limits are those of its VM's template, and the keys
// that differ in them, in order. Devices that only the VMI has keep their limits, and those that only the template has
// get none.
func Follow(
	template map[string]string, of *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance,
) (annotations map[string]string, changed []string) {
	annotations = maps.Clone(vmi.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key := range vmi.Annotations {
		if _, stays := template[key]; Is(key) && !stays && (Device(key, of) || !Device(key, &vmi.Spec)) {
			delete(annotations, key)
			changed = append(changed, key)
		}
	}
	for key, text := range template {
		if has, is := vmi.Annotations[key]; Is(key) && (!is || has != text) && Device(key, &vmi.Spec) {
			annotations[key] = text
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	return annotations, changed
}

// Each returns the limits of each disk and interface of a VMI that has some, disks first, by name:
// "disk root: iops=500,bps=50Mi".
func Each(vmi *v1.VirtualMachineInstance) []string {
	limits := Of(vmi.Annotations)
	var out []string
	for _, name := range Names(limits.Disks) {
		if Device(DiskPrefix+name, &vmi.Spec) {
			out = append(out, "disk "+name+": "+limits.Disks[name].String())
		}
	}
	for _, name := range Names(limits.Interfaces) {
		if Device(InterfacePrefix+name, &vmi.Spec) {
			out = append(out, "interface "+name+": "+limits.Interfaces[name].String())
		}
	}
	return out
}

// Sums are the limits of all that a guest reads, writes, receives and sends, bytes a second; 0 where not every disk, or
// not every interface, has one. Disks that only carry configuration, and CD-ROM drives, do not count.
type Sums struct{ Read, Written, Received, Sent uint64 }

// SumsOf adds up the limits of a VMI.
func SumsOf(vmi *v1.VirtualMachineInstance) Sums {
	limits := Of(vmi.Annotations)
	volumes := map[string]*v1.Volume{}
	for i := range vmi.Spec.Volumes {
		volumes[vmi.Spec.Volumes[i].Name] = &vmi.Spec.Volumes[i]
	}
	var read, written, received, sent sum
	for i := range vmi.Spec.Domain.Devices.Disks {
		d := &vmi.Spec.Domain.Devices.Disks[i]
		if v := volumes[d.Name]; d.CDRom != nil || v == nil || claims.Configuration(v) {
			continue
		}
		limit := limits.Disks[d.Name]
		read.add(max(limit.BPS, limit.ReadBPS))
		written.add(max(limit.BPS, limit.WriteBPS))
	}
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		nic := &vmi.Spec.Domain.Devices.Interfaces[i]
		if nic.State == v1.InterfaceStateAbsent {
			continue
		}
		limit := limits.Interfaces[nic.Name]
		received.add(limit.In)
		sent.add(limit.Out)
	}
	return Sums{read.total(), written.total(), received.total(), sent.total()}
}

// sum adds limits up, of which one that is missing makes the sum unlimited.
type sum struct {
	of        uint64
	unlimited bool
}

func (s *sum) add(limit uint64) {
	s.of += limit
	s.unlimited = s.unlimited || limit == 0
}

func (s *sum) total() uint64 {
	if s.unlimited {
		return 0
	}
	return s.of
}
