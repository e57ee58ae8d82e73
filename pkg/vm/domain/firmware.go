package domain

import (
	"cmp"
	"path"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// tcgTranslationCache bounds QEMU's cache of translated code, MiB. QEMU's own default grows to 1 GiB,
// which no pod's memory limit allows for; 32 MiB holds a Linux kernel and its user space.
const tcgTranslationCache = 32

// operatingSystem returns machine type and firmware.
func operatingSystem(spec *v1.DomainSpec, facts Facts) (*libvirtxml.DomainOS, error) {
	os := &libvirtxml.DomainOS{
		Type:   &libvirtxml.DomainOSType{Arch: "x86_64", Machine: machine(spec), Type: "hvm"},
		SMBios: &libvirtxml.DomainSMBios{Mode: "sysinfo"},
	}
	if facts.Kernel != "" {
		os.Kernel, os.Initrd, os.Cmdline = facts.Kernel, facts.Initrd, spec.Firmware.KernelBoot.KernelArgs
	}
	os.ACPI = tables(spec.Firmware, facts.Secrets)
	efi := surface.EFI(spec)
	if efi == nil {
		if f := spec.Firmware; f != nil && f.Bootloader != nil && f.Bootloader.BIOS != nil &&
			enabled(f.Bootloader.BIOS.UseSerial, false) {
			os.BIOS = &libvirtxml.DomainBIOS{UseSerial: "yes"}
		}
		return os, nil
	}
	code, vars := facts.Firmware.Code, facts.Firmware.Vars
	if secureBoot(efi) {
		code, vars = facts.Firmware.SecureCode, facts.Firmware.SecureVars
	}
	if code == "" || vars == "" {
		return nil, field("spec.domain.firmware.bootloader.efi",
			"this launcher image has no UEFI firmware (secure boot %t)", secureBoot(efi))
	}
	os.Loader = &libvirtxml.DomainLoader{
		Path: code, Readonly: "yes", Secure: yesNo(secureBoot(efi)), Type: "pflash",
		Format: "raw",
	}
	os.NVRam = &libvirtxml.DomainNVRam{NVRam: facts.NVRAM, Template: vars, Format: "raw", TemplateFormat: "raw"}
	return os, nil
}

// tables returns the ACPI tables by which Windows knows its licence, from volumes that are Secrets, in KubeVirt's keys.
func tables(f *v1.Firmware, secrets string) *libvirtxml.DomainACPI {
	if f == nil || f.ACPI == nil {
		return nil
	}
	out := &libvirtxml.DomainACPI{}
	for _, t := range []struct{ kind, volume string }{{"slic", f.ACPI.SlicNameRef}, {"msdm", f.ACPI.MsdmNameRef}} {
		if t.volume != "" {
			out.Tables = append(out.Tables,
				libvirtxml.DomainACPITable{Type: t.kind, Path: path.Join(secrets, t.volume, t.kind+".bin")})
		}
	}
	if out.Tables == nil {
		return nil
	}
	return out
}

// secureBoot reports whether Secure Boot is on, as it is unless it is switched off, as KubeVirt has it.
func secureBoot(efi *v1.EFI) bool { return enabled(efi.SecureBoot, true) }

// features returns the domain's features. Secure Boot needs SMM, so it brings it.
func features(spec *v1.DomainSpec, kvm bool) *libvirtxml.DomainFeatureList {
	f := spec.Features
	if f == nil {
		f = &v1.Features{}
	}
	out := &libvirtxml.DomainFeatureList{}
	if enabled(f.ACPI.Enabled, true) {
		out.ACPI = &libvirtxml.DomainFeature{}
	}
	if f.APIC == nil {
		out.APIC = &libvirtxml.DomainFeatureAPIC{}
	} else if enabled(f.APIC.Enabled, true) {
		out.APIC = &libvirtxml.DomainFeatureAPIC{}
		if f.APIC.EndOfInterrupt {
			out.APIC.EOI = "on"
		}
	}
	efi := surface.EFI(spec)
	switch {
	case efi != nil && secureBoot(efi):
		out.SMM = &libvirtxml.DomainFeatureSMM{State: "on"}
	case f.SMM != nil:
		out.SMM = &libvirtxml.DomainFeatureSMM{State: onOff(enabled(f.SMM.Enabled, true))}
	}
	if f.KVM != nil && f.KVM.Hidden && kvm {
		out.KVM = &libvirtxml.DomainFeatureKVM{Hidden: &libvirtxml.DomainFeatureState{State: "on"}}
	}
	if kvm {
		out.HyperV = hyperv(f)
	}
	if f.Pvspinlock != nil && kvm {
		out.PVSpinlock = &libvirtxml.DomainFeatureState{State: onOff(enabled(f.Pvspinlock.Enabled, true))}
	}
	if !kvm {
		out.TCG = &libvirtxml.DomainFeatureTCG{
			TBCache: &libvirtxml.DomainFeatureTCGTBCache{Unit: "MiB", Size: tcgTranslationCache},
		}
	}
	return out
}

// systemInformation returns the SMBIOS tables, and what else the firmware hands to the guest. Manufacturer, product and
// family are KubeVirt's defaults: guests and their agents (systemd, cloud-init, ansible) recognise the platform by
// them.
func systemInformation(vmi *v1.VirtualMachineInstance, facts *Facts) []libvirtxml.DomainSysInfo {
	var system []libvirtxml.DomainSysInfoEntry
	for _, e := range []struct{ name, value, otherwise string }{
		{"manufacturer", facts.SMBIOS.Manufacturer, "KubeVirt"},
		{"product", facts.SMBIOS.Product, "None"},
		{"version", facts.SMBIOS.Version, ""},
		{"sku", facts.SMBIOS.Sku, ""},
		{"family", facts.SMBIOS.Family, "KubeVirt"},
		{"uuid", UUID(vmi), ""},
	} {
		if value := cmp.Or(e.value, e.otherwise); value != "" {
			system = append(system, libvirtxml.DomainSysInfoEntry{Name: e.name, Value: value})
		}
	}
	if f := vmi.Spec.Domain.Firmware; f != nil && f.Serial != "" {
		system = append(system, libvirtxml.DomainSysInfoEntry{Name: "serial", Value: f.Serial})
	}
	smbios := &libvirtxml.DomainSysInfoSMBIOS{System: &libvirtxml.DomainSysInfoSystem{Entry: system}}
	if c := vmi.Spec.Domain.Chassis; c != nil {
		chassis := &libvirtxml.DomainSysInfoChassis{}
		for _, e := range []libvirtxml.DomainSysInfoEntry{
			{Name: "manufacturer", Value: c.Manufacturer},
			{Name: "version", Value: c.Version},
			{Name: "serial", Value: c.Serial},
			{Name: "asset", Value: c.Asset},
			{Name: "sku", Value: c.Sku},
		} {
			if e.Value != "" {
				chassis.Entry = append(chassis.Entry, e)
			}
		}
		if chassis.Entry != nil {
			smbios.Chassis = chassis
		}
	}
	tables := []libvirtxml.DomainSysInfo{{SMBIOS: smbios}}
	if vmi.Annotations[v1.IgnitionAnnotation] != "" {
		// Ignition looks for its configuration under this name; a file, so that it is in no command line.
		tables = append(tables, libvirtxml.DomainSysInfo{FWCfg: &libvirtxml.DomainSysInfoFWCfg{
			Entry: []libvirtxml.DomainSysInfoEntry{{Name: "opt/com.coreos/config", File: facts.Ignition}},
		}})
	}
	return tables
}

// clock returns the guest's clock: UTC unless the VMI says otherwise. With an offset, what the guest does to its clock
// survives a reboot (adjustment); without, each boot starts from UTC.
func clock(c *v1.Clock) *libvirtxml.DomainClock {
	out := &libvirtxml.DomainClock{Offset: "utc"}
	if c == nil {
		return out
	}
	switch {
	case c.Timezone != nil:
		out.Offset, out.TimeZone = "timezone", string(*c.Timezone)
	case c.UTC != nil && c.UTC.OffsetSeconds != nil:
		out.Offset, out.Basis, out.Adjustment = "variable", "utc", itoa(*c.UTC.OffsetSeconds)
	case c.UTC != nil:
		out.Adjustment = "reset"
	}
	t := c.Timer
	if t == nil {
		return out
	}
	if t.RTC != nil {
		out.Timer = append(out.Timer, libvirtxml.DomainTimer{
			Name: "rtc", TickPolicy: string(t.RTC.TickPolicy), Track: string(t.RTC.Track),
			Present: yesNo(enabled(t.RTC.Enabled, true)),
		})
	}
	if t.PIT != nil {
		out.Timer = append(out.Timer, libvirtxml.DomainTimer{
			Name: "pit", TickPolicy: string(t.PIT.TickPolicy), Present: yesNo(enabled(t.PIT.Enabled, true)),
		})
	}
	if t.KVM != nil {
		out.Timer = append(out.Timer,
			libvirtxml.DomainTimer{Name: "kvmclock", Present: yesNo(enabled(t.KVM.Enabled, true))})
	}
	if t.HPET != nil {
		out.Timer = append(out.Timer, libvirtxml.DomainTimer{
			Name: "hpet", TickPolicy: string(t.HPET.TickPolicy), Present: yesNo(enabled(t.HPET.Enabled, true)),
		})
	}
	if t.Hyperv != nil {
		out.Timer = append(out.Timer,
			libvirtxml.DomainTimer{Name: "hypervclock", Present: yesNo(enabled(t.Hyperv.Enabled, true))})
	}
	return out
}
