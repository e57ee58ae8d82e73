package hotplug

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// DeclaredAnnotation is on the VMI of a VirtualMachine: the names of the hotplugged volumes that its template had
// when the VMI was brought up to it, joined by commas. By it a volume that left the template is distinguished from
// one that was only ever plugged into the VMI, and one that is new there from one that was taken away until the
// next start.
const DeclaredAnnotation = reserved.DeclaredVolumes

// Declared reads DeclaredAnnotation.
func Declared(annotations map[string]string) map[string]bool {
	out := map[string]bool{}
	for name := range strings.SplitSeq(annotations[DeclaredAnnotation], ",") {
		if name != "" {
			out[name] = true
		}
	}
	return out
}

// Declare returns the value of DeclaredAnnotation for names.
func Declare(declared map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(declared)), ",")
}

// Change holds the volumes of its VM's template that a running guest gets now, and those that it gets later.
type Change struct {
	// Volumes and Disks are the VMI's, Declared the value of its DeclaredAnnotation.
	Volumes  []v1.Volume
	Disks    []v1.Disk
	Declared string
	// Changed says that the VMI's volumes and disks differ from these; Waiting that more is to come, once the guest has
	// released what it is to lose before.
	Changed, Waiting bool
	// Refused says why the guest has something only when it is started again, by the field below the template's spec.
	Refused map[string]string
}

// Follow returns the volumes and disks that a VMI is to have so that its guest has what the template declares, of which
// all disks have their defaults. It plugs into a running guest, or out of it: PersistentVolumeClaims and DataVolumes
// that are hotpluggable, with their disks, and media of CD-ROM drives. What changes is taken out first, and comes back
// once the guest and its node have released it. What was plugged into the VMI alone stays. live is false where changes
// wait for the next start (vmRolloutStrategy Stage).
func Follow(template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance, live bool) Change {
	f := following{
		template: template, vmi: vmi, live: live, declared: Declared(vmi.Annotations),
		goes: map[string]bool{},
	}
	f.lose()
	f.gain()
	f.compareDrives()
	f.Declared = Declare(f.declared)
	f.Changed = f.Declared != vmi.Annotations[DeclaredAnnotation] ||
		!equality.Semantic.DeepEqual(f.Volumes, vmi.Spec.Volumes) ||
		!equality.Semantic.DeepEqual(f.Disks, vmi.Spec.Domain.Devices.Disks)
	return f.Change
}

// Why a guest that runs is not given something.
const (
	whyStaged   = "vmRolloutStrategy is Stage"
	whyDrive    = "a CD-ROM drive comes, goes and changes only then"
	whyDisabled = "the guest was started with disableHotplug"
)

// Refuse adds reasons to Refused.
func (c *Change) Refuse(why map[string]string) {
	if c.Refused == nil {
		c.Refused = why
		return
	}
	maps.Copy(c.Refused, why)
}

type following struct {
	Change
	template *v1.VirtualMachineInstanceSpec
	vmi      *v1.VirtualMachineInstance
	live     bool
	declared map[string]bool
	// goes are the volumes that the VMI loses.
	goes map[string]bool
}

func (f *following) refuse(path, why string) {
	if f.Refused == nil {
		f.Refused = map[string]string{}
	}
	f.Refused[path] = why
}

func volumePath(name string) string { return "volumes[" + name + "]" }
func diskPath(name string) string   { return "domain.devices.disks[" + name + "]" }

// plugs reports a volume that a template can have a guest gain or lose.
func plugs(volume *v1.Volume) bool { return Is(volume) && volume.MemoryDump == nil }

// lose takes from the VMI what the template does not declare any more, or declares otherwise.
func (f *following) lose() {
	spec := &f.vmi.Spec
	for i := range spec.Volumes {
		have := &spec.Volumes[i]
		want := Volume(f.template, have.Name)
		switch {
		case !plugs(have), want == nil && !f.declared[have.Name], want != nil && !plugs(want):
			continue // the first and the last are another template's, if they changed
		case want != nil && equality.Semantic.DeepEqual(want, have) && f.sameDisk(have.Name):
			f.declared[have.Name] = true
			continue
		case !f.live:
			f.refuse(volumePath(have.Name), whyStaged)
			continue
		case want != nil && !f.comesBack(have.Name):
			f.refuse(diskPath(have.Name), whyDrive)
			continue
		}
		f.goes[have.Name], f.Waiting = true, f.Waiting || want != nil
		delete(f.declared, have.Name)
	}
	for name := range f.declared {
		if Volume(f.template, name) == nil && Volume(spec, name) == nil {
			delete(f.declared, name)
		}
	}
	for i := range spec.Volumes {
		if !f.goes[spec.Volumes[i].Name] {
			f.Volumes = append(f.Volumes, spec.Volumes[i])
		}
	}
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; !f.goes[d.Name] || f.staysEmpty(d) {
			f.Disks = append(f.Disks, *d)
		}
	}
}

// sameDisk reports whether the guest's disk needs no replacement: it is as the template has it, or cannot be replaced.
func (f *following) sameDisk(name string) bool {
	have, want := Disk(&f.vmi.Spec, name), Disk(f.template, name)
	return have == nil || want == nil || equality.Semantic.DeepEqual(have, want) ||
		!Pluggable(have) && have.CDRom != nil
}

// comesBack reports whether the guest can have the template's disk once it has lost its own of that name.
func (f *following) comesBack(name string) bool {
	have, want := Disk(&f.vmi.Spec, name), Disk(f.template, name)
	return want == nil || Pluggable(want) || have != nil && f.staysEmpty(have)
}

// staysEmpty reports a CD-ROM drive that stays when its medium goes.
func (f *following) staysEmpty(d *v1.Disk) bool {
	want := Disk(f.template, d.Name)
	return d.CDRom != nil && (!Pluggable(d) || want != nil && equality.Semantic.DeepEqual(*want, *d))
}

// gain gives the VMI what is new in the template.
func (f *following) gain() {
	for i := range f.template.Volumes {
		want := &f.template.Volumes[i]
		if !plugs(want) || Volume(&f.vmi.Spec, want.Name) != nil || f.declared[want.Name] {
			continue
		}
		path, why := f.hindrance(want)
		switch {
		case why != "":
			f.refuse(path, why)
		case f.leaving(want):
			f.Waiting = true
		default:
			f.Volumes = append(f.Volumes, *want.DeepCopy())
			if disk := Disk(f.template, want.Name); Disk(&f.vmi.Spec, want.Name) == nil && disk != nil {
				f.Disks = append(f.Disks, *disk.DeepCopy())
			}
			f.declared[want.Name] = true
		}
	}
}

// hindrance returns why a running guest cannot be given a volume, and the field that says so, or "" when it can.
func (f *following) hindrance(want *v1.Volume) (path, why string) {
	devices := &f.vmi.Spec.Domain.Devices
	disk, drive := Disk(f.template, want.Name), Disk(&f.vmi.Spec, want.Name)
	switch {
	case !f.live:
		return volumePath(want.Name), whyStaged
	case drive != nil && (disk == nil || !equality.Semantic.DeepEqual(*disk, *drive)), drive == nil && disk != nil &&
		!Pluggable(disk):
		return diskPath(want.Name), whyDrive
	case drive == nil && devices.DisableHotplug:
		return diskPath(want.Name), whyDisabled
	}
	name := claims.Name(want)
	for i := range f.Volumes {
		if other := &f.Volumes[i]; claims.Name(other) == name {
			return volumePath(want.Name), fmt.Sprintf("the guest has claim %s as volume %s", name, other.Name)
		}
	}
	return "", ""
}

// leaving reports a volume whose name or claim is still being taken from the guest.
func (f *following) leaving(want *v1.Volume) bool {
	return slices.ContainsFunc(f.vmi.Status.VolumeStatus, func(s v1.VolumeStatus) bool {
		info := s.PersistentVolumeClaimInfo
		return s.HotplugVolume != nil && (s.Name == want.Name || info != nil && info.ClaimName == claims.Name(want))
	})
}

// compareDrives refuses what drives differ in from the template's.
func (f *following) compareDrives() {
	for i := range f.Disks {
		have := &f.Disks[i]
		at := slices.IndexFunc(f.Volumes, func(v v1.Volume) bool { return v.Name == have.Name })
		if have.CDRom == nil || at >= 0 && !plugs(&f.Volumes[at]) {
			continue
		}
		want := Disk(f.template, have.Name)
		if want == nil && at < 0 || want != nil && !equality.Semantic.DeepEqual(*want, *have) {
			f.refuse(diskPath(have.Name), whyDrive)
		}
	}
	for i := range f.template.Domain.Devices.Disks {
		want := &f.template.Domain.Devices.Disks[i]
		if want.CDRom != nil && Disk(&f.vmi.Spec, want.Name) == nil && Volume(f.template, want.Name) == nil {
			f.refuse(diskPath(want.Name), whyDrive)
		}
	}
}
