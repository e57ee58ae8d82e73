//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// SaveMemory implements hypervisor.Connection.
func (c *connection) SaveMemory(_ context.Context, path string) error {
	return c.with(func(d *libvirt.Domain) error {
		text, err := d.GetXMLDesc(0)
		if err != nil {
			return err
		}
		snapshot, err := hypervisor.MemorySnapshot(text, path)
		if err != nil {
			return err
		}
		made, err := d.CreateSnapshotXML(snapshot, libvirt.DOMAIN_SNAPSHOT_CREATE_NO_METADATA)
		if err != nil {
			return err
		}
		return made.Free()
	})
}

// Restore implements hypervisor.Connection.
func (c *connection) Restore(_ context.Context, path string) error {
	return translate(c.conn.DomainRestoreFlags(path, "", libvirt.DOMAIN_SAVE_PAUSED))
}
