package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// transitionalModel is libvirt's name for virtio devices that drivers of virtio 0.9 know, too. They are conventional
// PCI devices: libvirt puts them behind a bridge on PCIe machine types.
const transitionalModel = "virtio-transitional"

// modernModel is libvirt's name for virtio devices of virtio 1.0 alone, on PCI and PCIe alike. KubeVirt has it of the
// balloon and of the controller of scsi disks, and tools look for it.
const modernModel = "virtio-non-transitional"

// makeTransitional gives the virtio devices the transitional model: all but the disks and their controllers, to which
// tuning gives it, and the inputs, which virtio 0.9 does not have.
func makeTransitional(d *libvirtxml.DomainDeviceList) {
	for i := range d.Interfaces {
		if d.Interfaces[i].Model.Type == v1.VirtIO {
			d.Interfaces[i].Model.Type = transitionalModel
		}
	}
	if d.MemBalloon.Model == modernModel {
		d.MemBalloon.Model = transitionalModel
	}
	if d.VSock != nil {
		d.VSock.Model = transitionalModel
	}
	for i := range d.RNGs {
		d.RNGs[i].Model = transitionalModel
	}
	for i := range d.Controllers {
		if d.Controllers[i].Type == "virtio-serial" {
			d.Controllers[i].Model = transitionalModel
		}
	}
}
