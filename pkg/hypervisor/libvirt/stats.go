//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/hypervisor"
)

// Stats implements hypervisor.Connection.
func (c *connection) Stats(context.Context) (hypervisor.Stats, error) {
	var out hypervisor.Stats
	err := c.with(func(d *libvirt.Domain) error {
		const wanted = libvirt.DOMAIN_STATS_CPU_TOTAL | libvirt.DOMAIN_STATS_BALLOON | libvirt.DOMAIN_STATS_VCPU |
			libvirt.DOMAIN_STATS_INTERFACE | libvirt.DOMAIN_STATS_BLOCK
		all, err := c.conn.GetAllDomainStats([]*libvirt.Domain{d}, wanted, 0)
		if err != nil {
			return err
		}
		for i := range all {
			out = stats(&all[i])
			if err := all[i].Domain.Free(); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// stats translates; libvirt counts memory in KiB. It shows an interface of type ethernet as the host sees the tap, which
// receives what the guest sends.
func stats(s *libvirt.DomainStats) hypervisor.Stats {
	var out hypervisor.Stats
	if s.Cpu != nil {
		out.CPUTime = s.Cpu.Time
	}
	out.VCPUs = uint64(len(s.Vcpu))
	if b := s.Balloon; b != nil {
		out.MemoryGuest, out.MemoryResident = b.Current<<10, b.Rss<<10
		if b.AvailableSet && b.UsableSet && b.Available >= b.Usable {
			out.MemoryUsed = (b.Available - b.Usable) << 10
		}
	}
	for _, n := range s.Net {
		out.Interfaces = append(out.Interfaces, hypervisor.InterfaceStats{Name: n.Name, Received: n.TxBytes, Sent: n.RxBytes})
	}
	for _, b := range s.Block {
		out.Disks = append(out.Disks, hypervisor.DiskStats{
			Name: b.Name, Read: b.RdBytes, Written: b.WrBytes, ReadRequests: b.RdReqs, WriteRequests: b.WrReqs,
		})
	}
	return out
}
