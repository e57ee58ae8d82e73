package surface

// volumeFields are the fields of spec.volumes.
var volumeFields = []Field{
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
	{Path: "volumes.cloudInitNoCloud.secretRef.name", Effect: CloudInit},
	{Path: "volumes.cloudInitNoCloud.userDataBase64", Effect: CloudInit, Note: "2048 bytes at most, decoded."},
	{Path: "volumes.cloudInitNoCloud.userData", Effect: CloudInit, Note: "2048 bytes at most."},
	{Path: "volumes.cloudInitNoCloud.networkDataSecretRef.name", Effect: CloudInit},
	{Path: "volumes.cloudInitNoCloud.networkDataBase64", Effect: CloudInit, Note: "2048 bytes at most, decoded."},
	{Path: "volumes.cloudInitNoCloud.networkData", Effect: CloudInit, Note: "2048 bytes at most."},
	{Path: "volumes.cloudInitConfigDrive.secretRef.name", Effect: CloudInit},
	{Path: "volumes.cloudInitConfigDrive.userDataBase64", Effect: CloudInit, Note: "2048 bytes at most, decoded."},
	{Path: "volumes.cloudInitConfigDrive.userData", Effect: CloudInit, Note: "2048 bytes at most."},
	{Path: "volumes.cloudInitConfigDrive.networkDataSecretRef.name", Effect: CloudInit},
	{
		Path: "volumes.cloudInitConfigDrive.networkDataBase64", Effect: CloudInit,
		Note: "2048 bytes at most, decoded; network_data.json as OpenStack has it.",
	},
	{
		Path: "volumes.cloudInitConfigDrive.networkData", Effect: CloudInit,
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
}
