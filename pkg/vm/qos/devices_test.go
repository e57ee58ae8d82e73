package qos

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func guest() *v1.VirtualMachineInstanceSpec {
	spec := &v1.VirtualMachineInstanceSpec{}
	devices := &spec.Domain.Devices
	disk := v1.DiskDevice{Disk: &v1.DiskTarget{}}
	devices.Disks = []v1.Disk{
		{Name: "root", DiskDevice: disk},
		{Name: "data", DiskDevice: disk},
		{Name: "init", DiskDevice: disk},
		{Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}},
		{Name: "raw", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{}}},
	}
	devices.Filesystems = []v1.Filesystem{{Name: "share"}}
	devices.Interfaces = []v1.Interface{
		{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}},
		{Name: "vf", InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}},
		{Name: "own", Binding: &v1.PluginBinding{Name: "passt"}},
	}
	spec.Volumes = []v1.Volume{
		{Name: "root"},
		{Name: "data"},
		{Name: "cd"},
		{Name: "init", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{}}},
	}
	return spec
}

func TestCheck(t *testing.T) {
	for key, want := range map[string]string{
		"disk.virtkit.io/root":         "",
		"interface.virtkit.io/default": "",
		"virtkit.io/template-hash":     "",
		"disk.virtkit.io/rot": `no disk is named "rot"; name one that there is (root, data, init), or remove the ` +
			`annotation`,
		"disk.virtkit.io/cd": `"cd" is a CD-ROM drive, and only disks have limits; remove the annotation`,
		"disk.virtkit.io/raw": `"raw" is a lun, whose SCSI commands go past QEMU's limits; make it a disk, or remove ` +
			`the annotation`,
		"disk.virtkit.io/share": `"share" is a file system that is shared with the guest, and only disks have limits` +
			`; remove the annotation`,
		"interface.virtkit.io/eth0": `no interface is named "eth0"; name one that there is (default), or remove the ` +
			`annotation`,
		"interface.virtkit.io/vf": `"vf" is a function of the node's network card, which the guest drives itself; ` +
			`limit it by its NetworkAttachmentDefinition (maxTxRate), or remove the annotation`,
		"interface.virtkit.io/own": `"own" belongs to the network binding plugin "passt", which alone can limit it; ` +
			`remove the annotation`,
	} {
		text := "bps=50Mi"
		if _, isDisk := cut(key); !isDisk {
			text = "in=50Mi"
		}
		got := ""
		if err := Check(key, text, guest()); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	const want = `no disk is named "root"; remove the annotation`
	err := Check(DiskPrefix+"root", "bps=50Mi", &v1.VirtualMachineInstanceSpec{})
	if err == nil || err.Error() != want {
		t.Errorf("without disks: %v", err)
	}
	for _, key := range []string{DiskPrefix + "root", InterfacePrefix + "default"} {
		if Check(key, "fast", guest()) == nil {
			t.Errorf("%s: nonsense is admitted", key)
		}
	}
}

func cut(key string) (string, bool) {
	return key[min(len(key), len(DiskPrefix)):], len(key) > len(DiskPrefix) && key[:len(DiskPrefix)] == DiskPrefix
}

// A VMI takes over what the template says of the devices that it has, and keeps the limits of what only it has.
func TestFollow(t *testing.T) {
	template := guest()
	template.Domain.Devices.Disks = append(template.Domain.Devices.Disks, v1.Disk{Name: "later"})
	instance := guest()
	instance.Volumes = append(instance.Volumes, v1.Volume{Name: "plugged"})
	vmi := &v1.VirtualMachineInstance{Spec: *instance, ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"other":                        "stays",
		"disk.virtkit.io/root":         "bps=1Mi",
		"disk.virtkit.io/data":         "bps=1Mi",
		"disk.virtkit.io/plugged":      "bps=1Mi",
		"disk.virtkit.io/gone":         "bps=1Mi",
		"interface.virtkit.io/default": "in=1Mi",
	}}}
	got, changed := Follow(map[string]string{
		"more": "waits for the next start", "disk.virtkit.io/root": "bps=2Mi", "disk.virtkit.io/later": "bps=3Mi",
		"disk.virtkit.io/init": "iops=9",
	}, template, vmi)
	want := map[string]string{
		"other": "stays", "disk.virtkit.io/root": "bps=2Mi", "disk.virtkit.io/plugged": "bps=1Mi",
		"disk.virtkit.io/init": "iops=9",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if names := []string{
		"disk.virtkit.io/data", "disk.virtkit.io/gone", "disk.virtkit.io/init", "disk.virtkit.io/root",
		"interface.virtkit.io/default",
	}; !slices.Equal(changed, names) {
		t.Errorf("%v, want %v", changed, names)
	}
	vmi.Annotations = got
	if again, changed := Follow(map[string]string{
		"disk.virtkit.io/root": "bps=2Mi", "disk.virtkit.io/later": "bps=3Mi", "disk.virtkit.io/init": "iops=9",
	}, template, vmi); len(changed) > 0 || !maps.Equal(again, want) {
		t.Errorf("again: %v, %v", again, changed)
	}
	if got, changed := Follow(nil, template, &v1.VirtualMachineInstance{}); len(changed) > 0 || len(got) > 0 {
		t.Errorf("nothing anywhere: %v, %v", got, changed)
	}
}

// A template that lists no disk for a volume, and no interface, has them nevertheless.
func TestDevice(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{Name: "root"}}}
	for key, want := range map[string]bool{
		"disk.virtkit.io/root": true, "disk.virtkit.io/data": false,
		"interface.virtkit.io/default": true, "interface.virtkit.io/eth0": false,
	} {
		if got := Device(key, spec); got != want {
			t.Errorf("%s: %v", key, got)
		}
	}
	if Device("interface.virtkit.io/eth0", guest()) {
		t.Error("a guest with interfaces has one that it does not list")
	}
}

func TestSums(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{Spec: *guest()}
	vmi.Spec.Domain.Devices.Interfaces = vmi.Spec.Domain.Devices.Interfaces[:1]
	vmi.Annotations = map[string]string{
		"disk.virtkit.io/root": "bps=10Mi", "disk.virtkit.io/data": "read-bps=1Mi,iops=5",
		"interface.virtkit.io/default": "out=1Mi",
	}
	if got, want := SumsOf(vmi), (Sums{Read: 11 << 20, Sent: 1 << 20}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Each names all limits that hold, also those that are no sums: of requests, and of one of several disks.
func TestEach(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{Spec: *guest()}
	vmi.Annotations = map[string]string{
		"disk.virtkit.io/root": "iops=500", "disk.virtkit.io/gone": "iops=1", "disk.virtkit.io/data": "bps=1Mi,iops=5",
		"interface.virtkit.io/default": "out=1Mi",
	}
	want := []string{"disk data: iops=5,bps=1Mi", "disk root: iops=500", "interface default: out=1Mi"}
	if got := Each(vmi); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	vmi.Annotations = nil
	if got := Each(vmi); len(got) > 0 {
		t.Errorf("%q without limits", got)
	}
}

func TestOf(t *testing.T) {
	got := Of(map[string]string{
		"disk.virtkit.io/root": "bps=10Mi", "disk.virtkit.io/data": "nonsense", "a": "b",
		"interface.virtkit.io/default": "in=1Mi", "interface.virtkit.io/x": "in=1",
	})
	if Text(got.Disks) != "root: bps=10Mi" || Text(got.Interfaces) != "default: in=1Mi" {
		t.Errorf("%+v", got)
	}
}
