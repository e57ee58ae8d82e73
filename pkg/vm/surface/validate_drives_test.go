package surface

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// What may be hotplugged, and which disk needs no volume.
func TestValidateDrives(t *testing.T) {
	const pluggable = ", volumes+: [{name: a, persistentVolumeClaim: {claimName: c, hotpluggable: true}}]}"
	disk := func(device, volume string) string {
		return "{domain: {devices: {disks+: [{name: a, " + device + "}]}}" + volume
	}
	const at = "spec.domain.devices.disks[1]"
	for name, tc := range map[string]struct{ spec, want string }{
		"empty":         {disk("cdrom: {}", "}"), ``},
		"empty on scsi": {disk("cdrom: {bus: scsi}", "}"), ``},
		"empty on virtio": {
			disk("cdrom: {bus: virtio}", "}"), at + `.cdrom.bus: "virtio" is not supported; use sata, scsi or usb`,
		},
		"empty disk": {
			disk("disk: {}", "}"), at + `.name: no volume is named "a"; add it to volumes or remove the disk`,
		},
		"boots from a disc": {disk("bootOrder: 1, cdrom: {}", pluggable), ``},
		"boots from a disk": {
			disk("bootOrder: 1, disk: {bus: scsi}", pluggable),
			at + `.bootOrder: the disk is plugged in once the guest runs, so it cannot boot from it; remove bootOrder`,
		},
		"disc on usb": {
			disk("cdrom: {bus: usb}", pluggable),
			at + `.cdrom.bus: "usb" cannot be plugged in while the guest runs; use sata or scsi`,
		},
		"disk on sata": {
			disk("disk: {bus: sata}", pluggable),
			at + `.disk.bus: "sata" cannot be plugged in while the guest runs; use scsi or virtio`,
		},
		"lun": {disk("lun: {}", pluggable), ``},
		"disc, but disabled": {
			"{domain: {devices: {disableHotplug: true, disks+: [{name: a, cdrom: {}}]}}" + pluggable,
			at + `: cannot be plugged in: domain.devices.disableHotplug is set; remove it`,
		},
	} {
		text, err := yaml.Marshal(added(t, tc.spec))
		if err != nil {
			t.Fatal(err)
		}
		vmi := &v1.VirtualMachineInstance{}
		if err := yaml.UnmarshalStrict(text, &vmi.Spec); err != nil {
			t.Fatal(err)
		}
		vmi.Name = "vm"
		DefaultVirtualMachineInstance(vmi, testDefaults)
		if got := Message(ValidateVirtualMachineInstance(vmi, Actor{})); got != tc.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, tc.want)
		}
	}
}

// A drive is on sata, a disk that comes later on scsi, unless they say otherwise.
func TestDefaultDisks(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	spec.Volumes = []v1.Volume{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for i := range spec.Volumes[1:] {
		spec.Volumes[i+1].PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
	}
	spec.Domain.Devices.Disks = []v1.Disk{{Name: "c", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}}
	DefaultDisks(spec)
	for _, d := range spec.Domain.Devices.Disks {
		if want := map[string]v1.DiskBus{
			"a": v1.DiskBusSATA,
			"b": v1.DiskBusSCSI,
			"c": v1.DiskBusSATA,
		}[d.Name]; busOf(&d) != want {
			t.Errorf("%s is on %s", d.Name, busOf(&d))
		}
	}
	if n := len(spec.Domain.Devices.Disks); n != 3 || len(spec.Domain.Devices.Interfaces) != 0 {
		t.Errorf("%d disks, %d interfaces", n, len(spec.Domain.Devices.Interfaces))
	}
}
