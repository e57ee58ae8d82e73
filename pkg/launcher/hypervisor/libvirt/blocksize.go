//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"

	"libvirt.org/go/libvirt"
)

// DiskSize implements hypervisor.Connection.
func (c *connection) DiskSize(_ context.Context, target string) (size int64, err error) {
	err = c.with(func(d *libvirt.Domain) error {
		info, err := d.GetBlockInfo(target, 0)
		if err != nil {
			return err
		}
		size = int64(info.Capacity)
		return nil
	})
	return size, err
}

// GrowDisk implements hypervisor.Connection.
func (c *connection) GrowDisk(_ context.Context, target string, bytes int64) error {
	return c.with(func(d *libvirt.Domain) error {
		return d.BlockResize(target, uint64(bytes), libvirt.DOMAIN_BLOCK_RESIZE_BYTES)
	})
}
