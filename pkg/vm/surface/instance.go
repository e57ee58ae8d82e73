package surface

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

var (
	architectures = []string{"amd64"}
	pullPolicies  = []string{string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)}
	diskBuses     = []string{
		string(v1.DiskBusVirtio), string(v1.DiskBusSATA), string(v1.DiskBusSCSI),
		string(v1.DiskBusUSB),
	}
	cdromBuses    = []string{string(v1.DiskBusSATA), string(v1.DiskBusSCSI), string(v1.DiskBusUSB)}
	caches        = []string{string(v1.CacheNone), string(v1.CacheWriteThrough), string(v1.CacheWriteBack)}
	ioModes       = []string{string(v1.IONative), string(v1.IOThreads)}
	errorPolicies = []string{
		string(v1.DiskErrorPolicyStop), string(v1.DiskErrorPolicyIgnore),
		string(v1.DiskErrorPolicyReport), string(v1.DiskErrorPolicyEnospace),
	}
	nicModels = []string{"virtio", "e1000", "e1000e", "igb", "rtl8139", "ne2k_pci", "pcnet"}
	nicStates = []string{
		string(v1.InterfaceStateLinkUp), string(v1.InterfaceStateLinkDown),
		string(v1.InterfaceStateAbsent),
	}
	pageSizes       = []string{"2Mi", "1Gi"}
	featurePolicies = []string{"force", "require", "optional", "disable", "forbid"}
	inputBuses      = []string{string(v1.InputBusUSB), string(v1.InputBusVirtio)}
	inputTypes      = []string{string(v1.InputTypeTablet), string(v1.InputTypeKeyboard)}
	videoTypes      = []string{"vga", "virtio", "bochs", "ramfb", "cirrus"}
	hostDiskTypes   = []string{string(v1.HostDiskExists), string(v1.HostDiskExistsOrCreate)}
	watchdogActions = []string{
		string(v1.WatchdogActionPoweroff), string(v1.WatchdogActionReset),
		string(v1.WatchdogActionShutdown),
	}
	panicModels    = []string{string(v1.Pvpanic), string(v1.Isa), string(v1.Hyperv)}
	rebootPolicies = []string{string(v1.RebootPolicyReboot), string(v1.RebootPolicyTerminate)}
	dnsPolicies    = []string{
		string(corev1.DNSClusterFirst), string(corev1.DNSClusterFirstWithHostNet), string(corev1.DNSDefault),
		string(corev1.DNSNone),
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
	{
		Path: "domain.devices.useVirtioTransitional", Effect: Domain,
		Note: "For guests whose drivers know virtio 0.9 only.",
	},
	{
		Path: "domain.devices.blockMultiQueue", Effect: Domain,
		Note: "A queue for each vCPU, of virtio disks and the controller of scsi disks.",
	},
	{
		Path: "domain.devices.networkInterfaceMultiqueue", Effect: Network,
		Note: "A queue for each vCPU, of virtio interfaces.",
	},
	{Path: "domain.devices.clientPassthrough", Effect: Domain, Note: "USB devices of clients: virtctl usbredir."},
	{Path: "domain.devices.sound.name", Effect: Domain},
	{
		Path: "domain.devices.sound.model", Effect: Domain, Only: soundModels,
		Note: "ich9 unless set. The guest has a sound card; nobody hears it.",
	},
	{Path: "domain.devices.disableHotplug", Effect: Domain, Note: "No spare PCIe ports."},
	{Path: "domain.devices.disks.name", Effect: Domain, Note: "The volume behind it."},
	{Path: "domain.devices.disks.disk.bus", Effect: Domain, Only: diskBuses},
	{Path: "domain.devices.disks.disk.readonly", Effect: Domain, Note: "Not on sata, whose disks are always writable."},
	{Path: "domain.devices.disks.disk.pciAddress", Effect: Domain, Note: "Of virtio disks."},
	{
		Path: "domain.devices.disks.lun.bus", Effect: Domain, Only: lunBuses,
		Note: "Of a claim with volumeMode Block, on a SCSI device.",
	},
	{Path: "domain.devices.disks.lun.readonly", Effect: Domain},
	{Path: "domain.devices.disks.cdrom.bus", Effect: Domain, Only: cdromBuses},
	{
		Path: "domain.devices.disks.cdrom.readonly", Effect: Domain, Note: "CD-ROMs are always read-only.",
		Only: []string{"true"},
	},
	{
		Path: "domain.devices.disks.cdrom.tray", Effect: Domain,
		Only: []string{string(v1.TrayStateClosed), string(v1.TrayStateOpen)},
	},
	{Path: "domain.devices.filesystems.name", Effect: Domain, Note: "The volume behind it, and its tag in the guest: " +
		"mount -t virtiofs NAME DIRECTORY. 36 characters at most."},
	{Path: "domain.devices.filesystems.virtiofs", Effect: Domain, Note: "Of a ConfigMap, Secret, service account or " +
		"the downward API; a claim's needs the feature gate EnableVirtioFsStorageVolumes. docs/volumes.md."},
	{Path: "domain.devices.disks.bootOrder", Effect: Domain},
	{Path: "domain.devices.disks.serial", Effect: Domain},
	{Path: "domain.devices.disks.cache", Effect: Domain, Only: caches},
	{Path: "domain.devices.disks.io", Effect: Domain, Only: ioModes},
	{Path: "domain.devices.disks.dedicatedIOThread", Effect: Domain, Note: "Of virtio disks."},
	{
		Path: "domain.devices.disks.tag", Effect: Seed,
		Note: "Needs a cloudInitConfigDrive volume, whose meta data has it.",
	},
	{
		Path: "domain.devices.disks.blockSize.matchVolume.enabled", Effect: Domain,
		Note: "As the device has it, or the file system, of which 4096 is the most.",
	},
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
	{
		Path: "domain.devices.interfaces.bridge", Effect: Network,
		Note: "What an interface of a network of Multus' has that names no binding.",
	},
	{
		Path: "domain.devices.interfaces.masquerade", Effect: Network,
		Note: "For the pod network; what an interface of it has that names no binding.",
	},
	{
		Path: "domain.devices.interfaces.sriov", Effect: Network,
		Note: "A function of the node's network card; on a network of Multus only. docs/networking.md.",
	},
	{
		Path: "domain.devices.interfaces.binding.name", Effect: Network,
		Note: "One of configuration.network.binding of the KubeVirt resource, without a sidecar; docs/networking.md.",
	},
	{Path: "domain.devices.interfaces.ports.name", Effect: Network},
	{Path: "domain.devices.interfaces.ports.protocol", Effect: Network, Only: protocols},
	{Path: "domain.devices.interfaces.ports.port", Effect: Network, Note: "With masquerade only. No ports means all."},
	{Path: "domain.devices.interfaces.macAddress", Effect: Network},
	{Path: "domain.devices.interfaces.bootOrder", Effect: Domain},
	{Path: "domain.devices.interfaces.pciAddress", Effect: Domain},
	{Path: "domain.devices.interfaces.acpiIndex", Effect: Domain, Note: "1 to 16383: the N of enoN in Linux."},
	{
		Path: "domain.devices.interfaces.tag", Effect: Seed,
		Note: "Needs a cloudInitConfigDrive volume, whose meta data has it.",
	},
	{Path: "domain.devices.interfaces.dhcpOptions.bootFileName", Effect: Network},
	{Path: "domain.devices.interfaces.dhcpOptions.tftpServerName", Effect: Network},
	{Path: "domain.devices.interfaces.dhcpOptions.ntpServers", Effect: Network, Note: "IPv4 addresses."},
	{Path: "domain.devices.interfaces.dhcpOptions.privateOptions", Effect: Network, Note: "224 to 254."},
	{
		Path: "domain.devices.interfaces.state", Effect: Domain, Only: nicStates,
		Note: "Changes while the guest runs; absent unplugs an interface of Multus'.",
	},
	{Path: "domain.devices.inputs.bus", Effect: Domain, Only: inputBuses},
	{Path: "domain.devices.inputs.type", Effect: Domain, Only: inputTypes},
	{Path: "domain.devices.inputs.name", Effect: Domain},
	{Path: "domain.devices.autoattachPodInterface", Effect: Network},
	{Path: "domain.devices.autoattachGraphicsDevice", Effect: Domain},
	{Path: "domain.devices.autoattachSerialConsole", Effect: Domain},
	{Path: "domain.devices.logSerialConsole", Effect: Pod, Note: "What the guest writes there as the log of the " +
		"container guest-console-log; docs/observe.md. virtctl logs has it without, unless it is false, and then " +
		"nobody has."},
	{Path: "domain.devices.autoattachMemBalloon", Effect: Domain},
	{Path: "domain.devices.autoattachInputDevice", Effect: Domain},
	{Path: "domain.devices.rng", Effect: Domain},
	{
		Path: "domain.devices.autoattachVSOCK", Effect: Domain,
		Note: "Needs the feature gate VSOCK, and a node with /dev/vhost-vsock; docs/devices.md.",
	},
	{Path: "domain.devices.gpus.name", Effect: Domain},
	{
		Path: "domain.devices.gpus.deviceName", Effect: Pod,
		Note: "A resource of configuration.permittedHostDevices; docs/devices.md.",
	},
	{
		Path: "domain.devices.gpus.virtualGPUOptions.display.enabled", Effect: Domain,
		Note: "Of mediated devices. The first is a screen, unless one of them says something.",
	},
	{Path: "domain.devices.gpus.virtualGPUOptions.display.ramFB.enabled", Effect: Domain},
	{Path: "domain.devices.hostDevices.name", Effect: Domain},
	{
		Path: "domain.devices.hostDevices.deviceName", Effect: Pod,
		Note: "A resource of configuration.permittedHostDevices. Needs the feature gate HostDevices.",
	},
	{
		Path: "domain.devices.downwardMetrics", Effect: Domain,
		Note: "A virtio-serial port for vm-dump-metrics --virtio. Needs the feature gate DownwardMetrics.",
	},
	{Path: "domain.devices.panicDevices.model", Effect: Domain, Only: panicModels},
	{Path: "domain.devices.tpm.enabled", Effect: Domain, Note: "Its state lives as long as the instance, unless it " +
		"is persistent."},
	{
		Path: "domain.devices.tpm.persistent", Effect: Domain,
		Note: "Kept on a PersistentVolumeClaim of the VM's; docs/lifecycle.md.",
	},
	{Path: "domain.devices.video.type", Effect: Domain, Only: videoTypes},
	{
		Path: "domain.ioThreadsPolicy", Effect: Domain, Only: ioThreadsPolicies,
		Note: "Of virtio disks and the controller of scsi disks.",
	},
	{
		Path: "domain.ioThreads.supplementalPoolThreadCount", Effect: Domain,
		Note: "With ioThreadsPolicy supplementalPool, each thread of which serves every virtio disk.",
	},
	{Path: "domain.launchSecurity.sev", Effect: Domain, Note: "Needs the feature gate WorkloadEncryptionSEV and UEFI " +
		"without Secure Boot; docs/cpu-memory.md."},
	{
		Path: "domain.launchSecurity.sev.policy.encryptedState", Effect: Domain,
		Note: "SEV-ES: on nodes with the label kubevirt.io/sev-es.",
	},
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
	{Path: "evictionStrategy", Effect: Life, Note: "What the eviction of the pod means for the guest; docs/drain.md. " +
		"Of the cluster unless set, which is None unless set.", Only: evictionStrategies},
	{
		Path: "startStrategy", Effect: Life, Note: "The guest waits, paused, until it is unpaused.",
		Only: []string{string(v1.StartStrategyPaused)},
	},
	{Path: "terminationGracePeriodSeconds", Effect: Life, Note: "30 unless set."},
	{Path: "volumes.name", Effect: Disk},
	{Path: "volumes.persistentVolumeClaim.claimName", Effect: Disk},
	{Path: "volumes.persistentVolumeClaim.readOnly", Effect: Disk},
	{Path: "volumes.persistentVolumeClaim.hotpluggable", Effect: Life, Note: "Plugged in once the guest runs, on " +
		"scsi or virtio, and by editing the VM; the disc of a drive. docs/hotplug.md."},
	{
		Path: "volumes.dataVolume.name", Effect: Disk,
		Note: "The claim of that name, once it is filled; docs/datavolumes.md.",
	},
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
	{
		Path: "volumes.cloudInitConfigDrive.networkDataBase64", Effect: Seed,
		Note: "2048 bytes at most, decoded; network_data.json as OpenStack has it.",
	},
	{
		Path: "volumes.cloudInitConfigDrive.networkData", Effect: Seed,
		Note: "2048 bytes at most; network_data.json as OpenStack has it.",
	},
	{Path: "volumes.sysprep.secret.name", Effect: Disk, Note: "Needs the key Autounattend.xml or Unattend.xml."},
	{Path: "volumes.sysprep.configMap.name", Effect: Disk, Note: "Needs the key Autounattend.xml or Unattend.xml."},
	{Path: "volumes.containerDisk.image", Effect: Pod},
	{Path: "volumes.containerDisk.imagePullSecret", Effect: Pod},
	{Path: "volumes.containerDisk.path", Effect: Disk},
	{Path: "volumes.containerDisk.imagePullPolicy", Effect: Pod, Only: pullPolicies},
	{Path: "volumes.emptyDisk.capacity", Effect: Disk},
	{
		Path: "volumes.ephemeral.persistentVolumeClaim.claimName", Effect: Disk,
		Note: "Only read; what the guest writes goes with the instance.",
	},
	{
		Path: "volumes.ephemeral.persistentVolumeClaim.readOnly", Effect: Pod,
		Note: "How the pod gets the claim; the guest can write either way.",
	},
	{Path: "volumes.hostDisk.path", Effect: Disk, Note: "A raw image on the node; docs/volumes.md. Needs the feature " +
		"gate HostDisk."},
	{
		Path: "volumes.hostDisk.type", Effect: Pod, Only: hostDiskTypes,
		Note: "DiskOrCreate makes the image when it is not there.",
	},
	{Path: "volumes.hostDisk.capacity", Effect: Disk, Note: "Of an image that is made."},
	{
		Path: "volumes.hostDisk.shared", Effect: Life,
		Note: "All nodes have the same file there, so the guest can migrate.",
	},
	{Path: "volumes.downwardMetrics", Effect: Disk, Note: "vhostmd's disk, for vm-dump-metrics. Needs the feature " +
		"gate DownwardMetrics."},
	{Path: "volumes.configMap.name", Effect: Pod, Note: "An ISO image of its keys; docs/volumes.md."},
	{Path: "volumes.configMap.optional", Effect: Pod},
	{Path: "volumes.configMap.volumeLabel", Effect: Disk, Note: "cfgdata unless set."},
	{Path: "volumes.secret.secretName", Effect: Pod, Note: "An ISO image of its keys; docs/volumes.md."},
	{Path: "volumes.secret.optional", Effect: Pod},
	{Path: "volumes.secret.volumeLabel", Effect: Disk, Note: "cfgdata unless set."},
	{
		Path: "volumes.serviceAccount.serviceAccountName", Effect: Pod,
		Note: "An ISO image with token, ca.crt and namespace; the pod runs as it.",
	},
	{Path: "volumes.downwardAPI.fields", Effect: Pod, Note: "Those of the launcher pod, which has the instance's " +
		"labels and annotations."},
	{Path: "volumes.downwardAPI.volumeLabel", Effect: Disk, Note: "cfgdata unless set."},
	{Path: "hostname", Effect: Network},
	{Path: "subdomain", Effect: Network},
	{Path: "networks.name", Effect: Network},
	{Path: "networks.pod", Effect: Network},
	{Path: "networks.pod.vmNetworkCIDR", Effect: Network, Note: "10.0.2.0/24 unless set; with masquerade only."},
	{
		Path: "networks.multus.networkName", Effect: Network,
		Note: "A NetworkAttachmentDefinition, NAME or NAMESPACE/NAME; docs/networking.md.",
	},
	{Path: "networks.multus.default", Effect: Network, Note: "In place of the pod network."},
	{Path: "dnsPolicy", Effect: Pod, Only: dnsPolicies},
	{Path: "dnsConfig", Effect: Pod},
	{
		Path: "accessCredentials.sshPublicKey.source.secret.secretName", Effect: Pod,
		Note: "Its values are lines of authorized_keys; the keys' names do not matter.",
	},
	{
		Path: "accessCredentials.sshPublicKey.propagationMethod.noCloud", Effect: Seed,
		Note: "Needs a cloudInitNoCloud volume. Read when the guest starts.",
	},
	{
		Path: "accessCredentials.sshPublicKey.propagationMethod.configDrive", Effect: Seed,
		Note: "Needs a cloudInitConfigDrive volume. Read when the guest starts.",
	},
	{
		Path: "accessCredentials.sshPublicKey.propagationMethod.qemuGuestAgent.users", Effect: Agent,
		Note: "Follows the Secret while the guest runs; replaces the users' authorized_keys.",
	},
	{
		Path: "accessCredentials.userPassword.source.secret.secretName", Effect: Pod,
		Note: "Each key is a user, its value the password.",
	},
	{
		Path: "accessCredentials.userPassword.propagationMethod.qemuGuestAgent", Effect: Agent,
		Note: "Follows the Secret while the guest runs.",
	},
	{Path: "readinessProbe.httpGet.path", Effect: Pod, Note: "The condition Ready, and the endpoints of Services, " +
		"follow it."},
	{Path: "readinessProbe.httpGet.port", Effect: Pod, Note: "At the guest, by the address of its pod."},
	{Path: "readinessProbe.httpGet.scheme", Effect: Pod, Only: []string{"HTTP", "HTTPS"}},
	{Path: "readinessProbe.httpGet.httpHeaders.name", Effect: Pod},
	{Path: "readinessProbe.httpGet.httpHeaders.value", Effect: Pod},
	{Path: "readinessProbe.tcpSocket.port", Effect: Pod, Note: "At the guest, by the address of its pod."},
	{
		Path: "readinessProbe.exec.command", Effect: Pod,
		Note: "In the guest, by its agent; it is ended when the time is up.",
	},
	{Path: "readinessProbe.guestAgentPing", Effect: Pod},
	{Path: "readinessProbe.initialDelaySeconds", Effect: Pod, Note: "From the start of the launcher's container on."},
	{Path: "readinessProbe.timeoutSeconds", Effect: Pod, Note: "1 unless set."},
	{Path: "readinessProbe.periodSeconds", Effect: Pod, Note: "10 unless set."},
	{Path: "readinessProbe.successThreshold", Effect: Pod, Note: "1 unless set."},
	{Path: "readinessProbe.failureThreshold", Effect: Pod, Note: "3 unless set."},
	{Path: "livenessProbe.httpGet.path", Effect: Pod, Note: "When it fails, the guest is shut down, and the instance " +
		"has failed."},
	{Path: "livenessProbe.httpGet.port", Effect: Pod, Note: "At the guest, by the address of its pod."},
	{Path: "livenessProbe.httpGet.scheme", Effect: Pod, Only: []string{"HTTP", "HTTPS"}},
	{Path: "livenessProbe.httpGet.httpHeaders.name", Effect: Pod},
	{Path: "livenessProbe.httpGet.httpHeaders.value", Effect: Pod},
	{Path: "livenessProbe.tcpSocket.port", Effect: Pod, Note: "At the guest, by the address of its pod."},
	{
		Path: "livenessProbe.exec.command", Effect: Pod,
		Note: "In the guest, by its agent; it is ended when the time is up.",
	},
	{Path: "livenessProbe.guestAgentPing", Effect: Pod},
	{Path: "livenessProbe.initialDelaySeconds", Effect: Pod, Note: "From the start of the launcher's container on."},
	{Path: "livenessProbe.timeoutSeconds", Effect: Pod, Note: "1 unless set."},
	{Path: "livenessProbe.periodSeconds", Effect: Pod, Note: "10 unless set."},
	{Path: "livenessProbe.successThreshold", Effect: Pod, Only: []string{"0", "1"}},
	{Path: "livenessProbe.failureThreshold", Effect: Pod, Note: "3 unless set."},
	{Path: "architecture", Effect: Pod, Only: architectures},
}
