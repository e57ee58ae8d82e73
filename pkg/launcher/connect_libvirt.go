//go:build cgo && libvirt_dlopen

package launcher

import "github.com/virtkit/virtkit/pkg/launcher/hypervisor/libvirt"

var (
	connect = libvirt.Connect
	probe   = libvirt.Probe
)
