//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"

	"libvirt.org/go/libvirt"
)

// Dump implements hypervisor.Connection.
func (c *connection) Dump(_ context.Context, path string) error {
	return c.with(func(d *libvirt.Domain) error {
		return d.CoreDumpWithFormat(path, libvirt.DOMAIN_CORE_DUMP_FORMAT_RAW, libvirt.DUMP_MEMORY_ONLY)
	})
}
