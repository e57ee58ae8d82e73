package describe

import (
	"slices"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// A drive without a disc is listed, too, after the volumes.
func TestDisks(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Annotations = map[string]string{"disk.virtkit.io/held": "bps=1024Ki,iops=5"}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "bay", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}},
		{Name: "cd", Serial: "iso", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI}}},
	}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "held"},
		{Name: "cd", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "iso", Hotpluggable: true}}},
	}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{
		{Name: "held", Phase: v1.HotplugVolumeMounted, Reason: "VolumeAttachFailed"},
		{Name: "cd", Phase: v1.VolumeReady, Target: "sdb", HotplugVolume: &v1.HotplugVolumeStatus{}},
		{
			Name: "out", Phase: v1.HotplugVolumeDetaching, Reason: "VolumeDetachFailed", Target: "sdc",
			HotplugVolume:             &v1.HotplugVolumeStatus{},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
		},
	}
	want := []Disk{
		{Name: "held", Source: "other", Phase: "MountedToPod (VolumeAttachFailed)", Limits: "iops=5,bps=1Mi"},
		{
			Name: "cd", Source: "dataVolume iso", Device: "cdrom scsi", Target: "sdb", Phase: "Ready", Serial: "iso",
			Hotplug: true,
		},
		{
			Name: "out", Source: "persistentVolumeClaim c", Target: "sdc", Phase: "Detaching (VolumeDetachFailed)",
			Hotplug: true,
		},
		{Name: "bay", Source: "empty", Device: "cdrom sata"},
	}
	if got := Disks(nil, vmi); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// A volume whose VM names another claim says which claim the guest still uses.
func TestDisksThatMove(t *testing.T) {
	claim := func(name string) v1.VolumeSource {
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = name
		return v1.VolumeSource{PersistentVolumeClaim: source}
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "moves", VolumeSource: claim("new")}, {Name: "stays", VolumeSource: claim("a")},
	}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{
		{Name: "moves", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"}},
		{Name: "stays", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a"}},
	}
	want := []Disk{
		{Name: "moves", Source: "persistentVolumeClaim new, copied from old"},
		{Name: "stays", Source: "persistentVolumeClaim a"},
	}
	if got := Disks(nil, vmi); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
