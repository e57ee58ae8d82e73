package domain

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func init() {
	// Drives whose medium comes once the guest runs, and one whose volume is there from the start.
	cases["cdrom-empty"] = func(vmi *v1.VirtualMachineInstance, f *Facts) {
		first := uint(1)
		devices := &vmi.Spec.Domain.Devices
		devices.Disks = append(devices.Disks,
			v1.Disk{
				Name:       "bay",
				DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA, Tray: v1.TrayStateClosed}},
			},
			v1.Disk{
				Name: "disc", BootOrder: &first, DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI}},
			},
			v1.Disk{Name: "tools", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}},
			v1.Disk{Name: "later", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}})
		vmi.Spec.Volumes = append(vmi.Spec.Volumes,
			v1.Volume{
				Name: "disc",
				VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true},
				},
			},
			v1.Volume{
				Name: "tools", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "tools"}},
			},
			v1.Volume{
				Name:         "later",
				VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "d", Hotpluggable: true}},
			})
		f.Disks["tools"] = Source{Path: "/containers/tools.iso", Format: "raw", ReadOnly: true}
	}
}

func TestMedium(t *testing.T) {
	vmi, _ := baseline()
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
		v1.Disk{Name: "bay", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}})
	d, err := Medium(vmi, "bay", Source{Path: "/dev/x", Format: "raw", Block: true})
	if err != nil || d.Source.Block.Dev != "/dev/x" || d.Device != "cdrom" {
		t.Errorf("%+v, %v", d, err)
	}
	for _, name := range []string{"root", "other"} {
		if _, err := Medium(vmi, name, Source{Path: "/x", Format: "raw"}); err == nil {
			t.Errorf("%s is a drive", name)
		}
	}
}
