package handler

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// What is taken from a CD-ROM drive that stays is its medium.
func TestTasksEject(t *testing.T) {
	cdrom := v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}
	disk := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}
	for name, tc := range map[string]struct {
		disks []v1.Disk
		eject bool
	}{
		"drive":   {[]v1.Disk{{Name: "a", DiskDevice: cdrom}}, true},
		"no more": {nil, false},
		"another": {[]v1.Disk{{Name: "b", DiskDevice: cdrom}}, false},
		"disk":    {[]v1.Disk{{Name: "a", DiskDevice: disk}}, false},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Devices.Disks = tc.disks
		vmi.Status.VolumeStatus = []v1.VolumeStatus{
			{Name: "a", Phase: v1.HotplugVolumeDetaching, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodUID: "u"}},
		}
		if got := tasks(vmi); len(got) != 1 || !got[0].detach || got[0].eject != tc.eject {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
