package surface

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

var (
	architectures = []string{"amd64"}
	pullPolicies  = []string{string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)}
	diskBuses     = []string{string(v1.DiskBusVirtio), string(v1.DiskBusSATA), string(v1.DiskBusSCSI), string(v1.DiskBusUSB)}
	cdromBuses    = []string{string(v1.DiskBusSATA), string(v1.DiskBusSCSI), string(v1.DiskBusUSB)}
	caches        = []string{string(v1.CacheNone), string(v1.CacheWriteThrough), string(v1.CacheWriteBack)}
	ioModes       = []string{string(v1.IONative), string(v1.IOThreads)}
	errorPolicies = []string{
		string(v1.DiskErrorPolicyStop), string(v1.DiskErrorPolicyIgnore),
		string(v1.DiskErrorPolicyReport), string(v1.DiskErrorPolicyEnospace),
	}
	nicModels       = []string{"virtio", "e1000", "e1000e", "rtl8139", "ne2k_pci", "pcnet"}
	nicStates       = []string{string(v1.InterfaceStateLinkUp), string(v1.InterfaceStateLinkDown)}
	pageSizes       = []string{"2Mi", "1Gi"}
	featurePolicies = []string{"force", "require", "optional", "disable", "forbid"}
	inputBuses      = []string{string(v1.InputBusUSB), string(v1.InputBusVirtio)}
	inputTypes      = []string{string(v1.InputTypeTablet), string(v1.InputTypeKeyboard)}
	videoTypes      = []string{"vga", "virtio", "bochs", "ramfb", "cirrus"}
	watchdogActions = []string{string(v1.WatchdogActionPoweroff), string(v1.WatchdogActionReset), string(v1.WatchdogActionShutdown)}
	panicModels     = []string{string(v1.Pvpanic), string(v1.Isa), string(v1.Hyperv)}
	rebootPolicies  = []string{string(v1.RebootPolicyReboot), string(v1.RebootPolicyTerminate)}
	dnsPolicies     = []string{
		string(corev1.DNSClusterFirst), string(corev1.DNSClusterFirstWithHostNet), string(corev1.DNSDefault), string(corev1.DNSNone),
	}
	protocols          = []string{"TCP", "UDP"}
	evictionStrategies = []string{
		string(v1.EvictionStrategyNone), string(v1.EvictionStrategyLiveMigrate),
		string(v1.EvictionStrategyLiveMigrateIfPossible), string(v1.EvictionStrategyExternal),
	}
)

// instanceFields is the table of VirtualMachineInstance.
var instanceFields = []Field{
	{Path: "priorityClassName", Effect: Pod},
	{Path: "domain.resources.requests.cpu", Effect: Pod, Note: "Also the number of vCPUs when domain.cpu says none."},
	{Path: "domain.resources.requests.memory", Effect: Pod, Note: "Also the guest's memory when domain.memory.guest is not set."},
	{Path: "domain.resources.limits.cpu", Effect: Pod, Note: "Also the number of vCPUs when domain.cpu says none; goes before the request."},
	{Path: "domain.resources.limits.memory", Effect: Pod},
	{Path: "domain.resources.overcommitGuestOverhead", Effect: Pod, Note: "The pod does not request what it needs beyond the guest's memory."},
	{Path: "domain.cpu.cores", Effect: Domain},
	{Path: "domain.cpu.sockets", Effect: Domain},
	{Path: "domain.cpu.threads", Effect: Domain},
	{Path: "domain.cpu.maxSockets", Effect: Domain, Note: "To how many sockets may be raised while the guest runs; docs/hotplug.md."},
	{Path: "domain.cpu.dedicatedCpuPlacement", Effect: Pod, Note: "Whole CPUs of a node with the label kubevirt.io/cpumanager; docs/cpu-memory.md."},
	{Path: "domain.cpu.isolateEmulatorThread", Effect: Pod, Note: "One more CPU, with dedicatedCpuPlacement."},
	{Path: "domain.cpu.numa.guestMappingPassthrough", Effect: Domain, Note: "With dedicatedCpuPlacement and hugepages."},
	{Path: "domain.cpu.model", Effect: Domain, Note: "host-model and host-passthrough are all that QEMU can emulate where there is no KVM."},
	{Path: "domain.cpu.features.name", Effect: Domain},
	{Path: "domain.cpu.features.policy", Effect: Domain, Only: featurePolicies},
	{Path: "domain.memory.guest", Effect: Domain},
	{Path: "domain.memory.maxGuest", Effect: Domain, Note: "To how much guest may be raised while the guest runs; docs/hotplug.md."},
	{Path: "domain.memory.hugepages.pageSize", Effect: Domain, Only: pageSizes},
	{Path: "domain.memory.reservedOverhead.addedOverhead", Effect: Pod},
	{Path: "domain.machine.type", Effect: Domain, Note: "q35, or a version of it such as pc-q35-9.2."},
	{Path: "domain.firmware.uuid", Effect: Domain, Note: "Made at random when a VirtualMachine is created, and kept."},
	{Path: "domain.firmware.bootloader.bios.useSerial", Effect: Domain},
	{Path: "domain.firmware.bootloader.efi", Effect: Domain},
	{Path: "domain.firmware.bootloader.efi.persistent", Effect: Pod, Note: "Its variables are kept on a PersistentVolumeClaim of the VM's; docs/lifecycle.md."},
	{Path: "domain.firmware.bootloader.efi.secureBoot", Effect: Domain, Note: "On unless false; it brings SMM with it."},
	{Path: "domain.firmware.serial", Effect: Domain},
	{Path: "domain.clock.utc", Effect: Domain},
	{Path: "domain.clock.utc.offsetSeconds", Effect: Domain},
	{Path: "domain.clock.timezone", Effect: Domain},
	{Path: "domain.clock.timer.hpet.tickPolicy", Effect: Domain, Only: []string{"delay", "catchup", "merge", "discard"}},
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
	{Path: "domain.devices.disableHotplug", Effect: Domain, Note: "No spare PCIe ports."},
	{Path: "domain.devices.disks.name", Effect: Domain, Note: "The volume behind it."},
	{Path: "domain.devices.disks.disk.bus", Effect: Domain, Only: diskBuses},
	{Path: "domain.devices.disks.disk.readonly", Effect: Domain, Note: "Not on sata, whose disks are always writable."},
	{Path: "domain.devices.disks.cdrom.bus", Effect: Domain, Only: cdromBuses},
	{Path: "domain.devices.disks.cdrom.readonly", Effect: Domain, Note: "CD-ROMs are always read-only.", Only: []string{"true"}},
	{Path: "domain.devices.disks.cdrom.tray", Effect: Domain, Only: []string{string(v1.TrayStateClosed), string(v1.TrayStateOpen)}},
	{Path: "domain.devices.disks.bootOrder", Effect: Domain},
	{Path: "domain.devices.disks.serial", Effect: Domain},
	{Path: "domain.devices.disks.cache", Effect: Domain, Only: caches},
	{Path: "domain.devices.disks.io", Effect: Domain, Only: ioModes},
	{Path: "domain.devices.disks.blockSize.custom.logical", Effect: Domain},
	{Path: "domain.devices.disks.blockSize.custom.physical", Effect: Domain},
	{Path: "domain.devices.disks.blockSize.custom.discardGranularity", Effect: Domain},
	{Path: "domain.devices.disks.shareable", Effect: Domain},
	{Path: "domain.devices.disks.errorPolicy", Effect: Domain, Only: errorPolicies},
	{Path: "domain.devices.watchdog.name", Effect: Domain},
	{Path: "domain.devices.watchdog.i6300esb", Effect: Domain},
	{Path: "domain.devices.watchdog.i6300esb.action", Effect: Domain, Only: watchdogActions},
	{Path: "domain.devices.interfaces.name", Effect: Network, Note: "The network behind it."},
	{Path: "domain.devices.interfaces.model", Effect: Domain, Only: nicModels},
	{Path: "domain.devices.interfaces.bridge", Effect: Network, Note: "What an interface of a network of Multus' has that names no binding."},
	{Path: "domain.devices.interfaces.masquerade", Effect: Network, Note: "For the pod network; what an interface of it has that names no binding."},
	{Path: "domain.devices.interfaces.ports.name", Effect: Network},
	{Path: "domain.devices.interfaces.ports.protocol", Effect: Network, Only: protocols},
	{Path: "domain.devices.interfaces.ports.port", Effect: Network, Note: "With masquerade only. No ports means all."},
	{Path: "domain.devices.interfaces.macAddress", Effect: Network},
	{Path: "domain.devices.interfaces.bootOrder", Effect: Domain},
	{Path: "domain.devices.interfaces.state", Effect: Domain, Only: nicStates},
	{Path: "domain.devices.inputs.bus", Effect: Domain, Only: inputBuses},
	{Path: "domain.devices.inputs.type", Effect: Domain, Only: inputTypes},
	{Path: "domain.devices.inputs.name", Effect: Domain},
	{Path: "domain.devices.autoattachPodInterface", Effect: Network},
	{Path: "domain.devices.autoattachGraphicsDevice", Effect: Domain},
	{Path: "domain.devices.autoattachSerialConsole", Effect: Domain},
	{Path: "domain.devices.autoattachMemBalloon", Effect: Domain},
	{Path: "domain.devices.autoattachInputDevice", Effect: Domain},
	{Path: "domain.devices.rng", Effect: Domain},
	{Path: "domain.devices.panicDevices.model", Effect: Domain, Only: panicModels},
	{Path: "domain.devices.tpm.enabled", Effect: Domain, Note: "Its state lives as long as the instance, unless it is persistent."},
	{Path: "domain.devices.tpm.persistent", Effect: Domain, Note: "Kept on a PersistentVolumeClaim of the VM's; docs/lifecycle.md."},
	{Path: "domain.devices.video.type", Effect: Domain, Only: videoTypes},
	{Path: "domain.chassis.manufacturer", Effect: Domain},
	{Path: "domain.chassis.version", Effect: Domain},
	{Path: "domain.chassis.serial", Effect: Domain},
	{Path: "domain.chassis.asset", Effect: Domain},
	{Path: "domain.chassis.sku", Effect: Domain},
	{Path: "domain.rebootPolicy", Effect: Domain, Only: rebootPolicies},
	{Path: "nodeSelector", Effect: Pod},
	{Path: "affinity", Effect: Pod},
	{Path: "schedulerName", Effect: Pod},
	{Path: "tolerations", Effect: Pod},
	{Path: "topologySpreadConstraints", Effect: Pod},
	{Path: "evictionStrategy", Effect: Life, Note: "What the eviction of the pod means for the guest; docs/drain.md. Of the cluster unless set, which is None unless set.", Only: evictionStrategies},
	{Path: "startStrategy", Effect: Life, Note: "The guest waits, paused, until it is unpaused.", Only: []string{string(v1.StartStrategyPaused)}},
	{Path: "terminationGracePeriodSeconds", Effect: Life, Note: "30 unless set."},
	{Path: "volumes.name", Effect: Disk},
	{Path: "volumes.persistentVolumeClaim.claimName", Effect: Disk},
	{Path: "volumes.persistentVolumeClaim.readOnly", Effect: Disk},
	{Path: "volumes.persistentVolumeClaim.hotpluggable", Effect: Life, Note: "Plugged in once the guest runs, on scsi or virtio; docs/hotplug.md."},
	{Path: "volumes.dataVolume.name", Effect: Disk, Note: "The claim of that name, once it is filled; docs/datavolumes.md."},
	{Path: "volumes.dataVolume.hotpluggable", Effect: Life, Note: "As that of a claim."},
	{Path: "volumes.cloudInitNoCloud.secretRef.name", Effect: Seed},
	{Path: "volumes.cloudInitNoCloud.userDataBase64", Effect: Seed, Note: "2048 bytes at most, decoded."},
	{Path: "volumes.cloudInitNoCloud.userData", Effect: Seed, Note: "2048 bytes at most."},
	{Path: "volumes.cloudInitNoCloud.networkDataSecretRef.name", Effect: Seed},
	{Path: "volumes.cloudInitNoCloud.networkDataBase64", Effect: Seed, Note: "2048 bytes at most, decoded."},
	{Path: "volumes.cloudInitNoCloud.networkData", Effect: Seed, Note: "2048 bytes at most."},
	{Path: "volumes.cloudInitConfigDrive.secretRef.name", Effect: Seed},
	{Path: "volumes.cloudInitConfigDrive.userDataBase64", Effect: Seed, Note: "2048 bytes at most, decoded."},
	{Path: "volumes.cloudInitConfigDrive.userData", Effect: Seed, Note: "2048 bytes at most."},
	{Path: "volumes.cloudInitConfigDrive.networkDataSecretRef.name", Effect: Seed},
	{Path: "volumes.cloudInitConfigDrive.networkDataBase64", Effect: Seed, Note: "2048 bytes at most, decoded; network_data.json as OpenStack has it."},
	{Path: "volumes.cloudInitConfigDrive.networkData", Effect: Seed, Note: "2048 bytes at most; network_data.json as OpenStack has it."},
	{Path: "volumes.sysprep.secret.name", Effect: Disk, Note: "Needs the key Autounattend.xml or Unattend.xml."},
	{Path: "volumes.sysprep.configMap.name", Effect: Disk, Note: "Needs the key Autounattend.xml or Unattend.xml."},
	{Path: "volumes.containerDisk.image", Effect: Pod},
	{Path: "volumes.containerDisk.imagePullSecret", Effect: Pod},
	{Path: "volumes.containerDisk.path", Effect: Disk},
	{Path: "volumes.containerDisk.imagePullPolicy", Effect: Pod, Only: pullPolicies},
	{Path: "volumes.emptyDisk.capacity", Effect: Disk},
	{Path: "hostname", Effect: Network},
	{Path: "subdomain", Effect: Network},
	{Path: "networks.name", Effect: Network},
	{Path: "networks.pod", Effect: Network},
	{Path: "networks.pod.vmNetworkCIDR", Effect: Network, Note: "10.0.2.0/24 unless set; with masquerade only."},
	{Path: "networks.multus.networkName", Effect: Network, Note: "A NetworkAttachmentDefinition, NAME or NAMESPACE/NAME; docs/networking.md."},
	{Path: "networks.multus.default", Effect: Network, Note: "In place of the pod network."},
	{Path: "dnsPolicy", Effect: Pod, Only: dnsPolicies},
	{Path: "dnsConfig", Effect: Pod},
	{Path: "accessCredentials.sshPublicKey.source.secret.secretName", Effect: Pod, Note: "Its values are lines of authorized_keys; the keys' names do not matter."},
	{Path: "accessCredentials.sshPublicKey.propagationMethod.noCloud", Effect: Seed, Note: "Needs a cloudInitNoCloud volume. Read when the guest starts."},
	{Path: "accessCredentials.sshPublicKey.propagationMethod.configDrive", Effect: Seed, Note: "Needs a cloudInitConfigDrive volume. Read when the guest starts."},
	{Path: "accessCredentials.sshPublicKey.propagationMethod.qemuGuestAgent.users", Effect: Agent, Note: "Follows the Secret while the guest runs; replaces the users' authorized_keys."},
	{Path: "accessCredentials.userPassword.source.secret.secretName", Effect: Pod, Note: "Each key is a user, its value the password."},
	{Path: "accessCredentials.userPassword.propagationMethod.qemuGuestAgent", Effect: Agent, Note: "Follows the Secret while the guest runs."},
	{Path: "architecture", Effect: Pod, Only: architectures},
}
