//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"fmt"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
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
		version, err := c.conn.GetVersion()
		if err != nil {
			return err
		}
		for i := range all {
			out = stats(&all[i])
			out.Version = fmt.Sprintf("QEMU %d.%d.%d", version/1000000, version/1000%1000, version%1000)
			if err := all[i].Domain.Free(); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// stats translates; libvirt counts memory in KiB. It shows an interface of type ethernet as the guest sees it, and the
// kernel shows its tap the other way around.
func stats(s *libvirt.DomainStats) hypervisor.Stats {
	var out hypervisor.Stats
	if s.Cpu != nil {
		out.CPUTime, out.CPUUser, out.CPUSystem = s.Cpu.Time, s.Cpu.User, s.Cpu.System
	}
	for _, v := range s.Vcpu {
		out.VCPUs = append(out.VCPUs, hypervisor.VCPUStats{
			State: uint32(max(v.State, 0)), Time: v.Time, Wait: known(v.WaitSet, v.Wait),
			Delay: known(v.DelaySet, v.Delay),
		})
	}
	if b := s.Balloon; b != nil {
		memory(&out, b)
	}
	for _, n := range s.Net {
		out.Interfaces = append(out.Interfaces, hypervisor.InterfaceStats{
			Name:     n.Name,
			Received: hypervisor.TrafficStats{Bytes: n.RxBytes, Packets: n.RxPkts, Errors: n.RxErrs, Dropped: n.RxDrop},
			Sent:     hypervisor.TrafficStats{Bytes: n.TxBytes, Packets: n.TxPkts, Errors: n.TxErrs, Dropped: n.TxDrop},
		})
	}
	for _, b := range s.Block {
		out.Disks = append(out.Disks, hypervisor.DiskStats{
			Name:  b.Name,
			Read:  hypervisor.RequestStats{Requests: b.RdReqs, Bytes: b.RdBytes, Time: b.RdTimes},
			Write: hypervisor.RequestStats{Requests: b.WrReqs, Bytes: b.WrBytes, Time: b.WrTimes},
			Flush: hypervisor.RequestStats{Requests: b.FlReqs, Time: b.FlTimes},
		})
	}
	return out
}

func memory(out *hypervisor.Stats, b *libvirt.DomainStatsBalloon) {
	out.MemoryGuest, out.MemoryResident = b.Current<<10, b.Rss<<10
	if b.AvailableSet && b.UsableSet && b.Available >= b.Usable {
		out.MemoryUsed = (b.Available - b.Usable) << 10
	}
	out.Memory = hypervisor.GuestMemory{
		Available: known(b.AvailableSet, b.Available<<10), Usable: known(b.UsableSet, b.Usable<<10),
		Unused: known(b.UnusedSet, b.Unused<<10), Cached: known(b.DiskCachesSet, b.DiskCaches<<10),
		SwapIn: known(b.SwapInSet, b.SwapIn<<10), SwapOut: known(b.SwapOutSet, b.SwapOut<<10),
		MajorFaults: known(b.MajorFaultSet, b.MajorFault), MinorFaults: known(b.MinorFaultSet, b.MinorFault),
		Maximum: known(b.MaximumSet, b.Maximum<<10),
	}
}

// known returns a value that was given, or nil.
func known(set bool, value uint64) *uint64 {
	if !set {
		return nil
	}
	return &value
}
