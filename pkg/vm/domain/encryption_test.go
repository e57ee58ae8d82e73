package domain

import (
	"maps"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func init() { maps.Copy(cases, encryptionCases) }

func encrypted(vmi *v1.VirtualMachineInstance, state bool) {
	vmi.Spec.Domain.LaunchSecurity = &v1.LaunchSecurity{SEV: &v1.SEV{}}
	if state {
		vmi.Spec.Domain.LaunchSecurity.SEV.Policy = &v1.SEVPolicy{EncryptedState: new(true)}
	}
	vmi.Spec.Domain.Firmware.Bootloader = &v1.Bootloader{EFI: &v1.EFI{SecureBoot: new(false)}}
}

// encryptionCases are of guests whose memory is encrypted.
var encryptionCases = map[string]func(*v1.VirtualMachineInstance, *Facts){
	"sev": func(vmi *v1.VirtualMachineInstance, f *Facts) { encrypted(vmi, false) },
	"sev-es-all-devices": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		encrypted(vmi, true)
		fourDisks(vmi, f)
		d := &vmi.Spec.Domain.Devices
		d.Rng = &v1.Rng{}
		d.Video = &v1.VideoDevice{Type: "virtio"}
		d.Inputs = []v1.Input{{Name: "tablet", Bus: v1.InputBusVirtio, Type: v1.InputTypeTablet}}
		d.AutoattachVSOCK, vmi.Status.VSOCKCID = new(true), new(uint32(5))
		f.Network.Interfaces[0].Queues = 2
	},
}

func TestEncryptedWithoutKVM(t *testing.T) {
	vmi, facts := baseline()
	encrypted(vmi, false)
	facts.KVM = false
	if _, err := Build(vmi, *facts); err == nil || !strings.HasPrefix(err.Error(), "spec.domain.launchSecurity: ") {
		t.Errorf("got %v", err)
	}
}

func TestPluggedIntoEncrypted(t *testing.T) {
	vmi, facts := baseline()
	encrypted(vmi, false)
	disk, err := Hotplugged(vmi, "root", rawFile, nil, 0)
	if err != nil || disk.Driver.IOMMU != "on" {
		t.Errorf("the disk reaches memory past the IOMMU: %v, %+v", err, disk)
	}
	nic, err := PluggedInterface(vmi, facts.Network, "default")
	if err != nil || nic.Driver == nil || nic.Driver.IOMMU != "on" {
		t.Errorf("the interface reaches memory past the IOMMU: %v, %+v", err, nic)
	}
	if c := SCSIController(&vmi.Spec); c.Driver == nil || c.Driver.IOMMU != "on" {
		t.Errorf("the controller reaches memory past the IOMMU: %+v", c)
	}
}
