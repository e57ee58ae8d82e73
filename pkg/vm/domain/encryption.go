package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

// Bits of the policy of AMD's SEV API.
const (
	sevNoDebug        = 1 << 0
	sevEncryptedState = 1 << 2
)

// encrypt has the processor encrypt the guest's memory, and has its virtio devices use only the part that the guest
// shares with them. libvirt finds out from the node which bit of an address marks encrypted memory.
func encrypt(d *libvirtxml.Domain, spec *v1.DomainSpec, kvm bool) error {
	if !passthrough.SEV(spec) {
		return nil
	}
	if !kvm {
		return field("spec.domain.launchSecurity", "memory is encrypted with KVM only, and the guest is to be emulated")
	}
	policy := uint(sevNoDebug)
	if passthrough.SEVES(spec) {
		policy |= sevEncryptedState
	}
	d.LaunchSecurity = &libvirtxml.DomainLaunchSecurity{SEV: &libvirtxml.DomainLaunchSecuritySEV{Policy: &policy}}
	behindIOMMU(d.Devices)
	return nil
}

// behindIOMMU sets up all devices but disks and their controller, which tuning does.
func behindIOMMU(d *libvirtxml.DomainDeviceList) {
	for i := range d.Interfaces {
		cardBehindIOMMU(&d.Interfaces[i])
	}
	for i := range d.Controllers {
		if d.Controllers[i].Type == "virtio-serial" {
			d.Controllers[i].Driver = &libvirtxml.DomainControllerDriver{IOMMU: "on"}
		}
	}
	for i := range d.Inputs {
		if d.Inputs[i].Bus == string(v1.InputBusVirtio) {
			d.Inputs[i].Driver = &libvirtxml.DomainInputDriver{IOMMU: "on"}
		}
	}
	for i := range d.Videos {
		if d.Videos[i].Model.Type == v1.VirtIO {
			d.Videos[i].Driver = &libvirtxml.DomainVideoDriver{IOMMU: "on"}
		}
	}
	for i := range d.RNGs {
		d.RNGs[i].Driver = &libvirtxml.DomainRNGDriver{IOMMU: "on"}
	}
	if d.MemBalloon.Model == modernModel {
		d.MemBalloon.Driver = &libvirtxml.DomainMemBalloonDriver{IOMMU: "on"}
	}
	if d.VSock != nil {
		d.VSock.Driver = &libvirtxml.DomainVSockDriver{IOMMU: "on"}
	}
}

func cardBehindIOMMU(x *libvirtxml.DomainInterface) {
	if x.Model.Type != v1.VirtIO {
		return
	}
	if x.Driver == nil {
		x.Driver = &libvirtxml.DomainInterfaceDriver{}
	}
	x.Driver.IOMMU = "on"
}
