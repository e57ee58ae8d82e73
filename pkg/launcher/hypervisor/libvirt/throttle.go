//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// LimitDisk implements hypervisor.Connection.
func (c *connection) LimitDisk(_ context.Context, target string, limits hypervisor.DiskLimits) error {
	return c.with(func(d *libvirt.Domain) error {
		now, err := d.GetBlockIoTune(target, 0)
		if err != nil {
			return err
		}
		has := hypervisor.DiskLimits{
			IOPS: now.TotalIopsSec, ReadIOPS: now.ReadIopsSec, WriteIOPS: now.WriteIopsSec,
			BPS: now.TotalBytesSec, ReadBPS: now.ReadBytesSec, WriteBPS: now.WriteBytesSec,
		}
		if has == limits {
			return nil
		}
		return d.SetBlockIoTune(target, &libvirt.DomainBlockIoTuneParameters{
			TotalIopsSecSet: true, TotalIopsSec: limits.IOPS,
			ReadIopsSecSet: true, ReadIopsSec: limits.ReadIOPS,
			WriteIopsSecSet: true, WriteIopsSec: limits.WriteIOPS,
			TotalBytesSecSet: true, TotalBytesSec: limits.BPS,
			ReadBytesSecSet: true, ReadBytesSec: limits.ReadBPS,
			WriteBytesSecSet: true, WriteBytesSec: limits.WriteBPS,
		}, libvirt.DOMAIN_AFFECT_LIVE)
	})
}
