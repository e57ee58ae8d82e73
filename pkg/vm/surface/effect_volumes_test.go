package surface_test

import "maps"

const withOverlay = "volumes: [{name: root, ephemeral: {persistentVolumeClaim: {claimName: c}}}]"

const withKernel = "domain: {firmware: {kernelBoot: {container: {image: k, kernelPath: /vmlinuz}}}, " +
	"memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}]}}"

// volumeExamples are the examples of volumes that hold files or lie on others, and of booting a kernel.
var volumeExamples = map[string]struct{ before, value string }{
	"volumes.ephemeral.persistentVolumeClaim.claimName": {before: withOverlay, value: "d"},
	"volumes.ephemeral.persistentVolumeClaim.readOnly":  {before: withOverlay, value: "true"},
	"volumes.downwardMetrics":                           {before: "volumes: [{name: root}]", value: "{}"},
	"domain.devices.downwardMetrics":                    {value: "{}"},
	"volumes.hostDisk.path":                             {before: withHostDisk, value: "/d/other.img"},
	"volumes.hostDisk.type":                             {before: withHostDisk, value: "Disk"},
	"volumes.hostDisk.capacity":                         {before: withHostDisk, value: "2Gi"},
	"volumes.configMap.name": {
		before: "volumes: [{name: root, configMap: {name: c}}]", value: "d",
	},
	"volumes.configMap.optional":    {before: "volumes: [{name: root, configMap: {name: c}}]", value: "true"},
	"volumes.configMap.volumeLabel": {before: "volumes: [{name: root, configMap: {name: c}}]", value: "OEMDRV"},
	"volumes.secret.secretName":     {before: "volumes: [{name: root, secret: {secretName: c}}]", value: "d"},
	"volumes.secret.optional":       {before: "volumes: [{name: root, secret: {secretName: c}}]", value: "true"},
	"volumes.secret.volumeLabel":    {before: "volumes: [{name: root, secret: {secretName: c}}]", value: "OEMDRV"},
	"volumes.serviceAccount.serviceAccountName": {
		before: "volumes: [{name: root, serviceAccount: {serviceAccountName: a}}]", value: "b",
	},
	"volumes.downwardAPI.fields": {
		before: "volumes: [{name: root, downwardAPI: {}}]",
		value:  "[{path: labels, fieldRef: {fieldPath: metadata.labels}}]",
	},
	"volumes.downwardAPI.volumeLabel": {
		before: "volumes: [{name: root, downwardAPI: {}}]", value: "OEMDRV",
	},
	"domain.firmware.kernelBoot.kernelArgs":                {before: withKernel, value: "quiet"},
	"domain.firmware.kernelBoot.container.image":           {before: withKernel, value: "other"},
	"domain.firmware.kernelBoot.container.imagePullSecret": {before: withKernel, value: "s"},
	"domain.firmware.kernelBoot.container.imagePullPolicy": {before: withKernel, value: "Always"},
	"domain.firmware.kernelBoot.container.kernelPath":      {before: withKernel, value: "/other"},
	"domain.firmware.kernelBoot.container.initrdPath":      {before: withKernel, value: "/initrd"},
}

func init() {
	maps.Copy(examples, volumeExamples)
	exempt["volumes.hostDisk.shared"] = true   // whether the guest may move: pkg/handler/vmistatus
	exempt["volumes.hostDisk.capacity"] = true // virt-handler makes the image: pkg/handler/podfs
}

const withHostDisk = "volumes: [{name: root, hostDisk: {path: /d/disk.img, type: DiskOrCreate}}]"
