package surface_test

import "maps"

func init() { maps.Copy(examples, hostDeviceExamples) }

const (
	withGPU = "domain: {memory: {guest: 1Gi}, devices: {gpus: [{name: a, deviceName: v/gpu}], " +
		"disks: [{name: root, disk: {bus: virtio}}]}}"
	withHostDevice = "domain: {memory: {guest: 1Gi}, devices: {hostDevices: [{name: a, deviceName: v/device}], " +
		"disks: [{name: root, disk: {bus: virtio}}]}}"
)

var hostDeviceExamples = map[string]struct{ before, value string }{
	"domain.devices.autoattachVSOCK":                              {value: "true"},
	"domain.devices.gpus.name":                                    {before: withGPU, value: "b"},
	"domain.devices.gpus.deviceName":                              {before: withGPU, value: "v/device"},
	"domain.devices.gpus.virtualGPUOptions.display.enabled":       {before: withGPU, value: "false"},
	"domain.devices.gpus.virtualGPUOptions.display.ramFB.enabled": {before: withGPU, value: "false"},
	"domain.devices.hostDevices.name":                             {before: withHostDevice, value: "b"},
	"domain.devices.hostDevices.deviceName":                       {before: withHostDevice, value: "v/gpu"},
}
