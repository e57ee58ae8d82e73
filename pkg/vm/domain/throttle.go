package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// throttle returns the rate limits of a disk; nil for one without, and for what has none.
func throttle(vmi *v1.VirtualMachineInstance, d *v1.Disk) *libvirtxml.DomainDiskIOTune {
	limits := qos.Of(vmi.Annotations).Disks[d.Name]
	if limits == (qos.Disk{}) || d.CDRom != nil || d.LUN != nil {
		return nil
	}
	return &libvirtxml.DomainDiskIOTune{
		TotalIopsSec: limits.IOPS, ReadIopsSec: limits.ReadIOPS, WriteIopsSec: limits.WriteIOPS,
		TotalBytesSec: limits.BPS, ReadBytesSec: limits.ReadBPS, WriteBytesSec: limits.WriteBPS,
	}
}
