package domain

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// Build returns the domain of vmi, without the volumes that are plugged in once it runs. An error means that the VMI
// and the facts do not fit together, and names the field; trying again changes nothing.
func Build(vmi *v1.VirtualMachineInstance, facts Facts) (*libvirtxml.Domain, error) {
	plugged := hotplug.Volumes(&vmi.Spec)
	if len(plugged) > 0 {
		boot := *vmi
		boot.Spec = *hotplug.AtStart(&vmi.Spec)
		vmi = &boot
	}
	vcpu, topology := processors(&vmi.Spec.Domain)
	tuning := tune(&vmi.Spec)
	d := &libvirtxml.Domain{
		Type:       "kvm",
		Name:       Name(vmi.Namespace, vmi.Name),
		UUID:       UUID(vmi),
		VCPU:       vcpu,
		CPU:        cpu(vmi.Spec.Domain.CPU, topology, facts.KVM),
		Features:   features(&vmi.Spec.Domain, facts.KVM),
		Clock:      clock(vmi.Spec.Domain.Clock),
		SysInfo:    systemInformation(vmi, &facts),
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "destroy",
	}
	if !facts.KVM {
		d.Type = "qemu"
	}
	if p := vmi.Spec.Domain.RebootPolicy; p != nil && *p == v1.RebootPolicyTerminate {
		d.OnReboot = "destroy"
	}
	err := memory(d, &vmi.Spec.Domain)
	if err != nil {
		return nil, err
	}
	shareMemory(d, &vmi.Spec.Domain)
	if err := place(d, &vmi.Spec.Domain, facts.CPUs); err != nil {
		return nil, err
	}
	if d.OS, err = operatingSystem(&vmi.Spec.Domain, facts); err != nil {
		return nil, err
	}
	devices := &libvirtxml.DomainDeviceList{Emulator: facts.Emulator}
	d.Devices = devices
	if devices.Disks, err = disks(vmi, facts); err != nil {
		return nil, err
	}
	if devices.Interfaces, err = interfaces(vmi, facts); err != nil {
		return nil, err
	}
	if devices.Hostdevs, err = hostDevices(&vmi.Spec.Domain.Devices, facts); err != nil {
		return nil, err
	}
	functions, err := networkFunctions(vmi, facts)
	if err != nil {
		return nil, err
	}
	devices.Hostdevs = append(devices.Hostdevs, functions...)
	if err := addPeripherals(devices, &vmi.Spec.Domain, facts); err != nil {
		return nil, err
	}
	devices.Filesystems = shares(&vmi.Spec.Domain)
	if devices.VSock, err = vsock(vmi); err != nil {
		return nil, err
	}
	devices.Controllers = controllers(devices, &vmi.Spec.Domain, tuning, len(plugged))
	if vmi.Annotations[v1.DisablePCIHole64] == "true" {
		disableHole64(devices, &vmi.Spec.Domain)
	}
	d.IOThreads = tuning.threads.count
	hypervClock(d.Clock, d.Features.HyperV)
	if facts.KVM {
		steadyClock(d.Clock, vmi.Status.TopologyHints)
	}
	if tuning.transitional {
		makeTransitional(devices)
	}
	if err := encrypt(d, &vmi.Spec.Domain, facts.KVM); err != nil {
		return nil, err
	}
	return d, nil
}

// maxName is the greatest length of a domain's name, bytes: libvirt makes file names of it, with up to 10 bytes more.
const maxName = 200

// Name returns a domain's name in libvirt: NAMESPACE_NAME, or the beginning of that and a hash.
func Name(namespace, name string) string { return names.Shorten(namespace+"_"+name, maxName) }

// UUID returns the firmware UUID that admission filled in, or else the VMI's own UID, which is as stable
// for the life of the guest.
func UUID(vmi *v1.VirtualMachineInstance) string {
	if f := vmi.Spec.Domain.Firmware; f != nil && f.UUID != "" {
		return string(f.UUID)
	}
	return string(vmi.UID)
}

// machine returns the VMI's machine type.
func machine(spec *v1.DomainSpec) string {
	if spec.Machine != nil && spec.Machine.Type != "" {
		return spec.Machine.Type
	}
	return surface.DefaultMachineType
}

// enabled reads an optional switch.
func enabled(b *bool, byDefault bool) bool {
	if b == nil {
		return byDefault
	}
	return *b
}

// onOff returns libvirt's spelling of a switch.
func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// yesNo returns libvirt's other spelling of a switch.
func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// field formats an error about a field of the VMI.
func field(path, format string, args ...any) error {
	return fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))
}
