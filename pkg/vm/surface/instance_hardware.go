package surface

import v1 "kubevirt.io/api/core/v1"

// hardwareFields are the fields of a VirtualMachineInstance for its CPUs, memory, firmware, clock and features.
var hardwareFields = []Field{
	{Path: "priorityClassName", Effect: Pod},
	{Path: "domain.resources.requests.cpu", Effect: Pod, Note: "Also the number of vCPUs when domain.cpu says none."},
	{
		Path: "domain.resources.requests.memory", Effect: Pod,
		Note: "Also the guest's memory when domain.memory.guest is not set.",
	},
	{Path: "domain.resources.limits.cpu", Effect: Pod, Note: "Also the number of vCPUs when domain.cpu says none; " +
		"goes before the request."},
	{Path: "domain.resources.limits.memory", Effect: Pod},
	{
		Path: "domain.resources.overcommitGuestOverhead", Effect: Pod,
		Note: "The pod does not request what it needs beyond the guest's memory.",
	},
	{Path: "domain.cpu.cores", Effect: Domain},
	{Path: "domain.cpu.sockets", Effect: Domain},
	{Path: "domain.cpu.threads", Effect: Domain},
	{Path: "domain.cpu.maxSockets", Effect: Domain, Note: "To how many sockets may be raised while the guest runs; " +
		"docs/hotplug.md."},
	{
		Path: "domain.cpu.dedicatedCpuPlacement", Effect: Pod,
		Note: "Whole CPUs of a node with the label kubevirt.io/cpumanager; docs/cpu-memory.md.",
	},
	{Path: "domain.cpu.isolateEmulatorThread", Effect: Pod, Note: "One more CPU, with dedicatedCpuPlacement."},
	{
		Path: "domain.cpu.numa.guestMappingPassthrough", Effect: Domain,
		Note: "With dedicatedCpuPlacement and hugepages.",
	},
	{Path: "domain.cpu.realtime.mask", Effect: Pod, Note: "vCPUs such as 0-3,^1, all unless set: virt-handler gives " +
		"them real-time priority. With numa.guestMappingPassthrough."},
	{Path: "domain.cpu.model", Effect: Domain, Note: "host-model and host-passthrough are all that QEMU can emulate " +
		"where there is no KVM."},
	{Path: "domain.cpu.features.name", Effect: Domain},
	{Path: "domain.cpu.features.policy", Effect: Domain, Only: featurePolicies},
	{Path: "domain.memory.guest", Effect: Domain},
	{Path: "domain.memory.maxGuest", Effect: Domain, Note: "To how much guest may be raised while the guest runs; " +
		"docs/hotplug.md."},
	{Path: "domain.memory.hugepages.pageSize", Effect: Domain},
	{Path: "domain.memory.reservedOverhead.addedOverhead", Effect: Pod},
	{Path: "domain.memory.reservedOverhead.memLock", Effect: Pod, Only: []string{
		v1.MemLockNotRequired,
		v1.MemLockRequired,
	}, Note: "Required lets QEMU lock the guest's memory and what it has beyond."},
	{Path: "domain.machine.type", Effect: Domain, Note: "q35, or a version of it such as pc-q35-9.2."},
	{Path: "domain.firmware.uuid", Effect: Domain, Note: "Made at random when a VirtualMachine is created, and kept."},
	{Path: "domain.firmware.bootloader.bios.useSerial", Effect: Domain},
	{Path: "domain.firmware.bootloader.efi", Effect: Domain},
	{
		Path: "domain.firmware.bootloader.efi.persistent", Effect: Pod,
		Note: "Its variables are kept on a PersistentVolumeClaim of the VM's; docs/lifecycle.md.",
	},
	{
		Path: "domain.firmware.bootloader.efi.secureBoot", Effect: Domain,
		Note: "On unless false; it brings SMM with it.",
	},
	{Path: "domain.firmware.serial", Effect: Domain},
	{
		Path: "domain.firmware.acpi.slicNameRef", Effect: Domain,
		Note: "A volume that is a Secret with the key slic.bin.",
	},
	{
		Path: "domain.firmware.acpi.msdmNameRef", Effect: Domain,
		Note: "A volume that is a Secret with the key msdm.bin.",
	},
	{Path: "domain.firmware.kernelBoot.kernelArgs", Effect: Domain},
	{Path: "domain.firmware.kernelBoot.container.image", Effect: Pod},
	{Path: "domain.firmware.kernelBoot.container.imagePullSecret", Effect: Pod},
	{Path: "domain.firmware.kernelBoot.container.imagePullPolicy", Effect: Pod, Only: pullPolicies},
	{Path: "domain.firmware.kernelBoot.container.kernelPath", Effect: Domain, Note: "In the image."},
	{Path: "domain.firmware.kernelBoot.container.initrdPath", Effect: Domain, Note: "In the image."},
	{Path: "domain.clock.utc", Effect: Domain},
	{Path: "domain.clock.utc.offsetSeconds", Effect: Domain},
	{Path: "domain.clock.timezone", Effect: Domain},
	{
		Path: "domain.clock.timer.hpet.tickPolicy", Effect: Domain,
		Only: []string{"delay", "catchup", "merge", "discard"},
	},
	{Path: "domain.clock.timer.hpet.present", Effect: Domain},
	{Path: "domain.clock.timer.kvm.present", Effect: Domain},
	{Path: "domain.clock.timer.pit.tickPolicy", Effect: Domain, Only: []string{"delay", "catchup", "discard"}},
	{Path: "domain.clock.timer.pit.present", Effect: Domain},
	{Path: "domain.clock.timer.rtc.tickPolicy", Effect: Domain, Only: []string{"delay", "catchup"}},
	{Path: "domain.clock.timer.rtc.present", Effect: Domain},
	{Path: "domain.clock.timer.rtc.track", Effect: Domain, Only: []string{"guest", "wall"}},
	{Path: "domain.clock.timer.hyperv.present", Effect: Domain},
	{Path: "domain.features.acpi.enabled", Effect: Domain},
	{Path: "domain.features.apic.enabled", Effect: Domain},
	{Path: "domain.features.apic.endOfInterrupt", Effect: Domain},
	{Path: "domain.features.smm.enabled", Effect: Domain},
	{Path: "domain.features.kvm.hidden", Effect: Domain, Note: "With KVM only."},
	{Path: "domain.features.pvspinlock.enabled", Effect: Domain, Note: "With KVM only."},
	{
		Path: "domain.features.hypervPassthrough.enabled", Effect: Domain,
		Note: "All of Hyper-V that the node's KVM has; with KVM only, and such a guest stays on its node.",
	},
	{Path: "domain.features.hyperv.relaxed.enabled", Effect: Domain, Note: "This and all of hyperv with KVM only."},
	{Path: "domain.features.hyperv.vapic.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.spinlocks.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.spinlocks.spinlocks", Effect: Domain, Note: "4096 unless set."},
	{Path: "domain.features.hyperv.vpindex.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.runtime.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.synic.enabled", Effect: Domain, Note: "It brings vpindex with it."},
	{
		Path: "domain.features.hyperv.synictimer.enabled", Effect: Domain,
		Note: "It brings synic and the hyperv timer with it.",
	},
	{Path: "domain.features.hyperv.synictimer.direct.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.reset.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.vendorid.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.vendorid.vendorid", Effect: Domain},
	{Path: "domain.features.hyperv.frequencies.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.reenlightenment.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.tlbflush.enabled", Effect: Domain, Note: "It brings vpindex with it."},
	{Path: "domain.features.hyperv.tlbflush.direct.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.tlbflush.extended.enabled", Effect: Domain},
	{Path: "domain.features.hyperv.ipi.enabled", Effect: Domain, Note: "It brings vpindex with it."},
	{
		Path: "domain.features.hyperv.evmcs.enabled", Effect: Domain,
		Note: "It brings vapic and the CPU feature vmx with it.",
	},
}
