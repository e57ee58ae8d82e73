package deviceplugin

import (
	"fmt"
	"path/filepath"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Shared offers Count units of one character device, which any number of processes can share.
type Shared struct {
	// Device is the path on the node and in containers.
	Device string
	Count  int
}

// Devices returns the units, which never change.
func (s Shared) Devices() ([]*pluginapi.Device, <-chan struct{}) {
	devices := make([]*pluginapi.Device, s.Count)
	for i := range devices {
		devices[i] = &pluginapi.Device{ID: fmt.Sprintf("%s%d", filepath.Base(s.Device), i), Health: pluginapi.Healthy}
	}
	return devices, nil
}

// Allocate returns the device, whichever unit is asked for.
func (s Shared) Allocate([]string) (*pluginapi.ContainerAllocateResponse, error) {
	return &pluginapi.ContainerAllocateResponse{
		Devices: []*pluginapi.DeviceSpec{{HostPath: s.Device, ContainerPath: s.Device, Permissions: "rw"}},
	}, nil
}
