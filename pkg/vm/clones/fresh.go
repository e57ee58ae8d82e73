package clones

import v1 "kubevirt.io/api/core/v1"

// Fresh gives a guest that is a copy of another an identity of its own: each interface has the MAC address that is
// wanted by its name, or none, so that it gets a new one, and the firmware has the serial number that is wanted and no
// UUID. Of a guest without firmware only a serial number makes one.
func Fresh(guest *v1.VirtualMachineInstanceSpec, macs map[string]string, serial string) {
	interfaces := guest.Domain.Devices.Interfaces
	for i := range interfaces {
		interfaces[i].MacAddress = macs[interfaces[i].Name]
	}
	if guest.Domain.Firmware == nil && serial != "" {
		guest.Domain.Firmware = &v1.Firmware{}
	}
	if firmware := guest.Domain.Firmware; firmware != nil {
		firmware.Serial, firmware.UUID = serial, ""
	}
}
