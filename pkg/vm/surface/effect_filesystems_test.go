package surface_test

func init() {
	const (
		volumes = "\nvolumes: [{name: root, containerDisk: {image: x}}, {name: a, configMap: {name: a}}, {name: b, " +
			"persistentVolumeClaim: {claimName: b}}]"
		devices = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}], " +
			"interfaces: [{name: default, masquerade: {}}], filesystems: "
	)
	examples["domain.devices.filesystems.name"] = struct{ before, value string }{
		devices + "[{name: a, virtiofs: {}}]}}" + volumes, "b",
	}
	examples["domain.devices.filesystems.virtiofs"] = struct{ before, value string }{
		devices + "[{name: a}]}}" + volumes, "{}",
	}
}
