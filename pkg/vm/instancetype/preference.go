package instancetype

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// applyPreference fills in what a spec leaves open.
func applyPreference(p *v1beta1.VirtualMachinePreferenceSpec, spec *v1.VirtualMachineInstanceSpec) {
	if p.CPU != nil && len(p.CPU.PreferredCPUFeatures) > 0 {
		if spec.Domain.CPU == nil {
			spec.Domain.CPU = &v1.CPU{}
		}
		for _, feature := range p.CPU.PreferredCPUFeatures {
			if !slices.ContainsFunc(spec.Domain.CPU.Features,
				func(own v1.CPUFeature) bool { return own.Name == feature.Name }) {
				spec.Domain.CPU.Features = append(spec.Domain.CPU.Features, feature)
			}
		}
	}
	if p.Devices != nil {
		preferDevices(p.Devices, &spec.Domain.Devices)
		for i := range spec.Domain.Devices.Disks {
			preferDisk(p.Devices, &spec.Domain.Devices.Disks[i])
		}
		for i := range spec.Domain.Devices.Interfaces {
			preferInterface(p.Devices, &spec.Domain.Devices.Interfaces[i], spec.Networks)
		}
	}
	preferFeatures(p.Features, &spec.Domain)
	preferFirmware(p.Firmware, &spec.Domain)
	preferClock(p.Clock, &spec.Domain)
	if p.Machine != nil && p.Machine.PreferredMachineType != "" &&
		(spec.Domain.Machine == nil || spec.Domain.Machine.Type == "") {
		spec.Domain.Machine = &v1.Machine{Type: p.Machine.PreferredMachineType}
	}
	if p.PreferredArchitecture != nil && spec.Architecture == "" {
		spec.Architecture = *p.PreferredArchitecture
	}
	if p.PreferredSubdomain != nil && spec.Subdomain == "" {
		spec.Subdomain = *p.PreferredSubdomain
	}
	prefer(&spec.TerminationGracePeriodSeconds, p.PreferredTerminationGracePeriodSeconds)
}

func preferDevices(p *v1beta1.DevicePreferences, devices *v1.Devices) {
	prefer(&devices.AutoattachGraphicsDevice, p.PreferredAutoattachGraphicsDevice)
	prefer(&devices.AutoattachMemBalloon, p.PreferredAutoattachMemBalloon)
	prefer(&devices.AutoattachPodInterface, p.PreferredAutoattachPodInterface)
	prefer(&devices.AutoattachSerialConsole, p.PreferredAutoattachSerialConsole)
	prefer(&devices.AutoattachInputDevice, p.PreferredAutoattachInputDevice)
	prefer(&devices.UseVirtioTransitional, p.PreferredUseVirtioTransitional)
	prefer(&devices.BlockMultiQueue, p.PreferredBlockMultiQueue)
	prefer(&devices.NetworkInterfaceMultiQueue, p.PreferredNetworkInterfaceMultiQueue)
	if p.PreferredDisableHotplug != nil && !devices.DisableHotplug {
		devices.DisableHotplug = *p.PreferredDisableHotplug
	}
	prefer(&devices.Rng, p.PreferredRng)
	if devices.TPM == nil && p.PreferredTPM != nil {
		devices.TPM = p.PreferredTPM.DeepCopy()
	}
	if devices.Sound != nil && devices.Sound.Model == "" {
		devices.Sound.Model = p.PreferredSoundModel
	}
	surface.AttachInput(devices)
	for i := range devices.Inputs {
		fill(&devices.Inputs[i].Bus, p.PreferredInputBus)
		fill(&devices.Inputs[i].Type, p.PreferredInputType)
	}
	for i := range devices.GPUs {
		if devices.GPUs[i].VirtualGPUOptions == nil && p.PreferredVirtualGPUOptions != nil {
			devices.GPUs[i].VirtualGPUOptions = p.PreferredVirtualGPUOptions.DeepCopy()
		}
	}
	for i := range devices.PanicDevices {
		prefer(&devices.PanicDevices[i].Model, p.PreferredPanicDeviceModel)
	}
}

func preferDisk(p *v1beta1.DevicePreferences, disk *v1.Disk) {
	switch {
	case disk.CDRom != nil:
		fill(&disk.CDRom.Bus, p.PreferredCdromBus)
	case disk.LUN != nil:
		fill(&disk.LUN.Bus, p.PreferredLunBus)
	case p.PreferredDiskBus != "" || disk.Disk != nil:
		if disk.Disk == nil {
			disk.Disk = &v1.DiskTarget{}
		}
		fill(&disk.Disk.Bus, p.PreferredDiskBus)
		if disk.Disk.Bus == v1.DiskBusVirtio {
			prefer(&disk.DedicatedIOThread, p.PreferredDiskDedicatedIoThread)
		}
	}
	fill(&disk.Cache, p.PreferredDiskCache)
	fill(&disk.IO, p.PreferredDiskIO)
	if disk.BlockSize == nil && p.PreferredDiskBlockSize != nil {
		disk.BlockSize = p.PreferredDiskBlockSize.DeepCopy()
	}
}

func preferInterface(p *v1beta1.DevicePreferences, nic *v1.Interface, networks []v1.Network) {
	fill(&nic.Model, p.PreferredInterfaceModel)
	onPod := slices.ContainsFunc(networks, func(n v1.Network) bool { return n.Name == nic.Name && n.Pod != nil })
	if p.PreferredInterfaceMasquerade != nil && onPod && nic.Binding == nil &&
		nic.InterfaceBindingMethod == (v1.InterfaceBindingMethod{}) {
		nic.Masquerade = p.PreferredInterfaceMasquerade.DeepCopy()
	}
}

func preferFeatures(p *v1beta1.FeaturePreferences, domain *v1.DomainSpec) {
	if p == nil {
		return
	}
	if domain.Features == nil {
		domain.Features = &v1.Features{}
	}
	features := domain.Features
	if p.PreferredAcpi != nil && features.ACPI.Enabled == nil {
		features.ACPI = *p.PreferredAcpi.DeepCopy()
	}
	if p.PreferredApic != nil && features.APIC == nil {
		features.APIC = p.PreferredApic.DeepCopy()
	}
	if p.PreferredHyperv != nil && features.Hyperv == nil {
		features.Hyperv = p.PreferredHyperv.DeepCopy()
	}
	if p.PreferredKvm != nil && features.KVM == nil {
		features.KVM = p.PreferredKvm.DeepCopy()
	}
	if p.PreferredPvspinlock != nil && features.Pvspinlock == nil {
		features.Pvspinlock = p.PreferredPvspinlock.DeepCopy()
	}
	if p.PreferredSmm != nil && features.SMM == nil {
		features.SMM = p.PreferredSmm.DeepCopy()
	}
}

// preferFirmware chooses a boot loader where none is chosen. useSecureBoot is worth nothing without useEfi.
func preferFirmware(p *v1beta1.FirmwarePreferences, domain *v1.DomainSpec) {
	if p == nil {
		return
	}
	chosen := v1.Bootloader{}
	if domain.Firmware != nil && domain.Firmware.Bootloader != nil {
		chosen = *domain.Firmware.Bootloader.DeepCopy()
	}
	switch {
	case chosen.EFI != nil, chosen.BIOS != nil:
	case p.PreferredEfi != nil:
		chosen.EFI = p.PreferredEfi.DeepCopy()
	case on(p.DeprecatedPreferredUseEfi):
		chosen.EFI = &v1.EFI{SecureBoot: clone(p.DeprecatedPreferredUseSecureBoot)}
	case on(p.PreferredUseBios):
		chosen.BIOS = &v1.BIOS{}
	}
	if chosen.BIOS != nil {
		prefer(&chosen.BIOS.UseSerial, p.PreferredUseBiosSerial)
	}
	if chosen == (v1.Bootloader{}) {
		return
	}
	if domain.Firmware == nil {
		domain.Firmware = &v1.Firmware{}
	}
	domain.Firmware.Bootloader = &chosen
	if efi := chosen.EFI; efi != nil && (efi.SecureBoot == nil || *efi.SecureBoot) {
		// Secure Boot rests on SMM.
		if domain.Features == nil {
			domain.Features = &v1.Features{}
		}
		if domain.Features.SMM == nil {
			enabled := true
			domain.Features.SMM = &v1.FeatureState{Enabled: &enabled}
		}
	}
}

func preferClock(p *v1beta1.ClockPreferences, domain *v1.DomainSpec) {
	if p == nil || p.PreferredClockOffset == nil && p.PreferredTimer == nil {
		return
	}
	if domain.Clock == nil {
		domain.Clock = &v1.Clock{}
	}
	if p.PreferredClockOffset != nil && domain.Clock.ClockOffset == (v1.ClockOffset{}) {
		domain.Clock.ClockOffset = *p.PreferredClockOffset.DeepCopy()
	}
	if p.PreferredTimer != nil && domain.Clock.Timer == nil {
		domain.Clock.Timer = p.PreferredTimer.DeepCopy()
	}
}

func prefer[T any](field **T, value *T) {
	if *field == nil {
		*field = clone(value)
	}
}

func fill[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

func on(b *bool) bool { return b != nil && *b }
