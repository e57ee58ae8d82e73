package clones

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// A copy has none of the addresses and numbers of the guest it is of, but those that are asked for.
func TestFresh(t *testing.T) {
	const mac = "02:00:00:00:00:09"
	guest := &v1.VirtualMachineInstanceSpec{}
	guest.Domain.Firmware = &v1.Firmware{UUID: "u", Serial: "s"}
	guest.Domain.Devices.Interfaces = []v1.Interface{{Name: "a", MacAddress: "old"}, {Name: "b", MacAddress: "old"}}
	Fresh(guest, map[string]string{"b": mac}, "new")
	if nics, f := guest.Domain.Devices.Interfaces, guest.Domain.Firmware; nics[0].MacAddress != "" ||
		nics[1].MacAddress != mac || f.UUID != "" || f.Serial != "new" {
		t.Errorf("interfaces %+v, firmware %+v", nics, f)
	}
	plain := &v1.VirtualMachineInstanceSpec{}
	if Fresh(plain, nil, ""); plain.Domain.Firmware != nil {
		t.Errorf("firmware %+v", plain.Domain.Firmware)
	}
	if Fresh(plain, nil, "new"); plain.Domain.Firmware == nil || plain.Domain.Firmware.Serial != "new" {
		t.Errorf("firmware %+v", plain.Domain.Firmware)
	}
}
