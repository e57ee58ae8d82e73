package hotplug

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// spec reads volumes and disks in short: "NAME=CLAIM" is a hotpluggable volume, "NAME!CLAIM" one that is there from the
// start; "NAME:KIND/BUS" is its disk, with a serial number after another slash.
func spec(t *testing.T, text string) v1.VirtualMachineInstanceSpec {
	t.Helper()
	var out v1.VirtualMachineInstanceSpec
	for word := range strings.FieldsSeq(text) {
		var entry string
		var into any
		switch {
		case strings.ContainsAny(word, "=!"):
			fields := strings.FieldsFunc(word, func(r rune) bool { return r == '=' || r == '!' })
			entry = fmt.Sprintf("{name: %s, persistentVolumeClaim: {claimName: %s, hotpluggable: %v}}", fields[0],
				fields[1], strings.Contains(word, "="))
			out.Volumes = append(out.Volumes, v1.Volume{})
			into = &out.Volumes[len(out.Volumes)-1]
		default:
			fields := strings.FieldsFunc(word+"/", func(r rune) bool { return r == ':' || r == '/' })
			entry = fmt.Sprintf("{name: %s, serial: %q, %s: {bus: %s}}", fields[0], strings.Join(fields[3:], ""),
				fields[1], fields[2])
			disks := &out.Domain.Devices.Disks
			*disks = append(*disks, v1.Disk{})
			into = &(*disks)[len(*disks)-1]
		}
		if err := yaml.UnmarshalStrict([]byte(entry), into); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// short writes a spec as spec reads it.
func short(volumes []v1.Volume, disks []v1.Disk) string {
	var out []string
	for _, v := range volumes {
		sign := map[bool]string{true: "=", false: "!"}[v.PersistentVolumeClaim.Hotpluggable]
		out = append(out, v.Name+sign+v.PersistentVolumeClaim.ClaimName)
	}
	for _, d := range disks {
		var kind string
		var bus v1.DiskBus
		switch {
		case d.CDRom != nil:
			kind, bus = "cdrom", d.CDRom.Bus
		case d.LUN != nil:
			kind, bus = "lun", d.LUN.Bus
		default:
			kind, bus = "disk", d.Disk.Bus
		}
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s:%s/%s/%s", d.Name, kind, bus, d.Serial), "/"))
	}
	return strings.Join(out, " ")
}

func TestFollow(t *testing.T) {
	const root = "root!root root:disk/virtio "
	for name, test := range map[string]struct {
		template, instance string
		// declared are the names that the instance was given from its template, status those that its guest and node
		// have, each with the claim of its name unless said otherwise.
		declared, status string
		staged           bool
		// want is the instance after; wantDeclared its declared names; more what is refused ("PATH: WHY") and
		// "waiting".
		want, wantDeclared, more string
	}{
		"nothing": {template: root, instance: root, want: root},
		"a disk comes": {
			template: root + "a=a a:disk/scsi", instance: root, want: "root!root a=a root:disk/virtio a:disk/scsi",
			wantDeclared: "a",
		},
		"a lun comes": {
			template: root + "a=a a:lun/scsi", instance: root, want: "root!root a=a root:disk/virtio a:lun/scsi",
			wantDeclared: "a",
		},
		"it is there": {
			template: root + "a=a a:disk/scsi", instance: root + "a=a a:disk/scsi", declared: "a", status: "a",
			want: root + "a=a a:disk/scsi", wantDeclared: "a",
		},
		"it was not known": {
			template: root + "a=a a:disk/scsi", instance: root + "a=a a:disk/scsi", status: "a",
			want: root + "a=a a:disk/scsi", wantDeclared: "a",
		},
		"a disk goes": {template: root, instance: root + "a=a a:disk/scsi", declared: "a", status: "a", want: root},
		"of the instance": {
			template: root, instance: root + "a=a a:disk/scsi", status: "a", want: root + "a=a a:disk/scsi",
		},
		"taken away": {
			template: root + "a=a a:disk/scsi", instance: root, declared: "a", want: root, wantDeclared: "a",
		},
		"taken, and gone": {template: root, instance: root, declared: "a", want: root},
		"another claim": {
			template: root + "a=b a:disk/scsi", instance: root + "a=a a:disk/scsi", declared: "a", status: "a",
			want: root, more: "waiting",
		},
		"still leaving": {template: root + "a=b a:disk/scsi", instance: root, status: "a", want: root, more: "waiting"},
		"left": {
			template: root + "a=b a:disk/scsi", instance: root, want: "root!root a=b root:disk/virtio a:disk/scsi",
			wantDeclared: "a",
		},
		"another name": {
			template: root + "b=a b:disk/scsi", instance: root + "a=a a:disk/scsi", declared: "a", status: "a",
			want: root, more: "waiting",
		},
		"another serial": {
			template: root + "a=a a:disk/scsi/s", instance: root + "a=a a:disk/scsi", declared: "a", status: "a",
			want: root, more: "waiting",
		},
		"of two": {
			template: root + "b=b b:disk/scsi", instance: root + "a=a a:disk/scsi b=b b:disk/scsi", declared: "a,b",
			status: "a b", want: root + "b=b b:disk/scsi", wantDeclared: "b",
		},
		"claim taken": {
			template: root + "b=a b:disk/scsi", instance: root + "a=a a:disk/scsi", status: "a",
			want: root + "a=a a:disk/scsi",
			more: "volumes[b]: the guest has claim a as volume a",
		},
		"for good": {
			template: root + "a!a a:disk/scsi", instance: root + "a=a a:disk/scsi", declared: "a", status: "a",
			want: root + "a=a a:disk/scsi", wantDeclared: "a",
		},
		"not yet": {
			template: root + "a=a a:disk/scsi", instance: root + "a!a a:disk/scsi", want: root + "a!a a:disk/scsi",
		},

		"inject": {template: "c=c c:cdrom/sata", instance: "c:cdrom/sata", want: "c=c c:cdrom/sata", wantDeclared: "c"},
		"eject": {
			template: "c:cdrom/sata", instance: "c=c c:cdrom/sata", declared: "c", status: "c", want: "c:cdrom/sata",
		},
		"swap": {
			template: "c=d c:cdrom/sata", instance: "c=c c:cdrom/sata", declared: "c", status: "c",
			want: "c:cdrom/sata", more: "waiting",
		},
		"swapped": {
			template: "c=d c:cdrom/sata", instance: "c:cdrom/sata", want: "c=d c:cdrom/sata", wantDeclared: "c",
		},
		"empty": {template: "c:cdrom/sata", instance: "c:cdrom/sata", want: "c:cdrom/sata"},
		"drive comes": {
			template: root + "c:cdrom/sata", instance: root, want: root, more: "domain.devices.disks[c]: " + whyDrive,
		},
		"with its disc": {
			template: root + "c=c c:cdrom/sata", instance: root, want: root,
			more: "domain.devices.disks[c]: " + whyDrive,
		},
		"on scsi": {
			template: root + "c=c c:cdrom/scsi", instance: root, want: "root!root c=c root:disk/virtio c:cdrom/scsi",
			wantDeclared: "c",
		},
		"drive goes": {
			template: root, instance: root + "c:cdrom/sata", want: root + "c:cdrom/sata",
			more: "domain.devices.disks[c]: " + whyDrive,
		},
		"goes with disc": {
			template: root, instance: root + "c=c c:cdrom/sata", declared: "c", status: "c",
			want: root + "c:cdrom/sata", more: "domain.devices.disks[c]: " + whyDrive,
		},
		"goes from scsi": {template: root, instance: root + "c=c c:cdrom/scsi", declared: "c", status: "c", want: root},
		"scsi eject": {
			template: "c:cdrom/scsi", instance: "c=c c:cdrom/scsi", declared: "c", status: "c", want: "c:cdrom/scsi",
		},
		"to another bus": {
			template: "c=c c:cdrom/scsi", instance: "c=c c:cdrom/sata", declared: "c", status: "c",
			want: "c=c c:cdrom/sata", wantDeclared: "c", more: "domain.devices.disks[c]: " + whyDrive,
		},
		"from scsi": {
			template: "c=c c:cdrom/sata", instance: "c=c c:cdrom/scsi", declared: "c", status: "c",
			want: "c=c c:cdrom/scsi", wantDeclared: "c", more: "domain.devices.disks[c]: " + whyDrive,
		},
		"not as wanted": {
			template: "c=c c:cdrom/sata/s", instance: "c:cdrom/sata", want: "c:cdrom/sata",
			more: "domain.devices.disks[c]: " + whyDrive,
		},
		"disk to drive": {
			template: root + "a=a a:cdrom/sata", instance: root + "a=a a:disk/scsi", declared: "a", status: "a",
			want: root + "a=a a:disk/scsi", wantDeclared: "a", more: "domain.devices.disks[a]: " + whyDrive,
		},
		"drive to disk": {
			template: "c=c c:disk/scsi", instance: "c=c c:cdrom/sata", declared: "c", status: "c",
			want: "c=c c:cdrom/sata", wantDeclared: "c", more: "domain.devices.disks[c]: " + whyDrive,
		},
		"of the start": {template: "c:cdrom/sata", instance: "c!c c:cdrom/sata", want: "c!c c:cdrom/sata"},
		"disc of another": {
			template: root, instance: root + "c=c c:cdrom/scsi", status: "c", want: root + "c=c c:cdrom/scsi",
		},

		"staged": {
			staged: true, template: root + "a=a a:disk/scsi", instance: root, want: root,
			more: "volumes[a]: " + whyStaged,
		},
		"staged, goes": {
			staged: true, template: root, instance: root + "a=a a:disk/scsi", declared: "a", status: "a",
			want: root + "a=a a:disk/scsi", wantDeclared: "a", more: "volumes[a]: " + whyStaged,
		},
		"staged, another": {
			staged: true, template: root + "a=b a:disk/scsi", instance: root + "a=a a:disk/scsi", declared: "a",
			status: "a", want: root + "a=a a:disk/scsi", wantDeclared: "a", more: "volumes[a]: " + whyStaged,
		},
		"staged, same": {
			staged: true, template: root + "a=a a:disk/scsi", instance: root + "a=a a:disk/scsi", declared: "a",
			status: "a", want: root + "a=a a:disk/scsi", wantDeclared: "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := spec(t, test.template)
			vmi := &v1.VirtualMachineInstance{Spec: spec(t, test.instance)}
			if test.declared != "" {
				vmi.Annotations = map[string]string{DeclaredAnnotation: test.declared}
			}
			for name := range strings.FieldsSeq(test.status) {
				vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{
					Name: name, HotplugVolume: &v1.HotplugVolumeStatus{},
					PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: name},
				})
			}
			before := vmi.DeepCopy()
			got := Follow(&template, vmi, !test.staged)
			want := spec(t, test.want)
			if text := short(got.Volumes, got.Disks); text != short(want.Volumes, want.Domain.Devices.Disks) ||
				got.Declared != test.wantDeclared {
				t.Errorf("%s, declared %q", text, got.Declared)
			}
			var more []string
			for _, path := range slices.Sorted(maps.Keys(got.Refused)) {
				more = append(more, path+": "+got.Refused[path])
			}
			if got.Waiting {
				more = append(more, "waiting")
			}
			if text := strings.Join(more, ", "); text != test.more {
				t.Errorf("more: %s", text)
			}
			same := short(got.Volumes, got.Disks) == short(before.Spec.Volumes, before.Spec.Domain.Devices.Disks) &&
				got.Declared == test.declared
			if got.Changed == same {
				t.Errorf("changed: %v", got.Changed)
			}

			// What was carried over is carried over.
			vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = got.Volumes, got.Disks
			vmi.Annotations = map[string]string{DeclaredAnnotation: got.Declared}
			if again := Follow(&template, vmi, !test.staged); again.Changed && test.status != "" {
				t.Errorf("again: %s, declared %q", short(again.Volumes, again.Disks), again.Declared)
			}
		})
	}
}

func TestFollowDisabled(t *testing.T) {
	template := spec(t, "a=a a:disk/scsi c=c c:cdrom/sata")
	vmi := &v1.VirtualMachineInstance{Spec: spec(t, "c:cdrom/sata")}
	vmi.Spec.Domain.Devices.DisableHotplug = true
	got := Follow(&template, vmi, true)
	if text := short(got.Volumes, got.Disks); text != "c=c c:cdrom/sata" ||
		got.Refused["domain.devices.disks[a]"] != whyDisabled {
		t.Errorf("%s, refused %v", text, got.Refused)
	}
}

func TestAtStart(t *testing.T) {
	for text, want := range map[string]struct{ start, fixed string }{
		"root!root root:disk/virtio":                {"root!root root:disk/virtio", "root!root root:disk/virtio"},
		"a=a a:disk/scsi c=c c:cdrom/sata":          {"c:cdrom/sata", ""},
		"c:cdrom/sata d=d d:cdrom/scsi":             {"c:cdrom/sata d:cdrom/scsi", ""},
		"c!c c:cdrom/sata e:cdrom/sata":             {"c!c c:cdrom/sata e:cdrom/sata", "c!c c:cdrom/sata"},
		"root!root root:disk/virtio l=l l:lun/scsi": {"root!root root:disk/virtio", "root!root root:disk/virtio"},
		"root!root root:disk/virtio c=c c:cdrom/scsi": {
			"root!root root:disk/virtio c:cdrom/scsi", "root!root root:disk/virtio",
		},
	} {
		whole := spec(t, text)
		start, fixed := AtStart(&whole), Without(&whole)
		if got := short(start.Volumes, start.Domain.Devices.Disks); got != want.start {
			t.Errorf("%s starts with %s", text, got)
		}
		if got := short(fixed.Volumes, fixed.Domain.Devices.Disks); got != want.fixed {
			t.Errorf("%s keeps %s", text, got)
		}
	}
}

func TestRemoveDisc(t *testing.T) {
	for text, want := range map[string]string{
		"c=c c:cdrom/sata": "c:cdrom/sata",
		"c=c c:cdrom/scsi": "",
		"c=c c:disk/scsi":  "",
	} {
		s := spec(t, text)
		if err := Remove(&s, "c"); err != nil || short(s.Volumes, s.Domain.Devices.Disks) != want {
			t.Errorf("%s: %s, %v", text, short(s.Volumes, s.Domain.Devices.Disks), err)
		}
	}
}
