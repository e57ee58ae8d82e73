package surface

import v1 "kubevirt.io/api/core/v1"

// deviceFields are the fields of spec.domain.devices.
var deviceFields = []Field{
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
	{Path: "domain.devices.clientPassthrough", Effect: Domain, Note: "USB devices of clients: `virtctl usbredir`."},
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
		Path: "domain.devices.disks.tag", Effect: CloudInit,
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
	{
		Path: "domain.devices.interfaces.ports.port", Effect: Network,
		Note: "No ports means all. Limits masquerade only; with another binding, whose ports have names for probes " +
			"and policies alone, a warning says so.",
	},
	{Path: "domain.devices.interfaces.macAddress", Effect: Network},
	{Path: "domain.devices.interfaces.bootOrder", Effect: Domain},
	{Path: "domain.devices.interfaces.pciAddress", Effect: Domain},
	{Path: "domain.devices.interfaces.acpiIndex", Effect: Domain, Note: "1 to 16383: the N of enoN in Linux."},
	{
		Path: "domain.devices.interfaces.tag", Effect: CloudInit,
		Note: "Needs a cloudInitConfigDrive volume, whose meta data has it.",
	},
	{
		Path: "domain.devices.interfaces.dhcpOptions.bootFileName", Effect: Network,
		Note: "By DHCPv6 option 59, if it is a URL or there is a tftpServerName that is no IPv4 address.",
	},
	{
		Path: "domain.devices.interfaces.dhcpOptions.tftpServerName", Effect: Network,
		Note: "By DHCPv6 in the URL of bootFileName alone.",
	},
	{
		Path: "domain.devices.interfaces.dhcpOptions.ntpServers", Effect: Network,
		Note: "IPv4 addresses, by DHCP for IPv4 alone.",
	},
	{
		Path: "domain.devices.interfaces.dhcpOptions.privateOptions", Effect: Network,
		Note: "224 to 254, by DHCP for IPv4 alone.",
	},
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
		"container guest-console-log; docs/observe.md. `virtctl logs` has it without, unless it is false, and then " +
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
}
