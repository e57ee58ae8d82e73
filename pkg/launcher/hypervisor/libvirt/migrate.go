//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// accountWait is the time to wait for libvirt's account of a migration, which mostly comes before its end.
const accountWait = 200 * time.Millisecond

// Migrate moves the domain peer to peer: our daemon talks to the other one, and the client only waits.
func (c *connection) Migrate(_ context.Context, m hypervisor.Migration) (hypervisor.Migrated, error) {
	jobs := make(chan libvirt.DomainJobInfo, 1)
	c.mu.Lock()
	c.jobs = jobs
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.jobs = nil
	}()
	err := c.with(func(d *libvirt.Domain) error {
		text, err := d.GetXMLDesc(0)
		if err != nil {
			return err
		}
		disks, err := hypervisor.CopiedDisks(text, m.CopyBelow)
		if err != nil {
			return err
		}
		moved, err := hypervisor.MovedDisks(text, m.Moved)
		if err != nil {
			return err
		}
		disks = slices.AppendSeq(disks, maps.Keys(moved))
		flags := libvirt.MIGRATE_LIVE | libvirt.MIGRATE_PEER2PEER
		parameters := &libvirt.DomainMigrateParameters{URISet: true, URI: "unix://" + m.Memory}
		if m.Held {
			flags |= libvirt.MIGRATE_PAUSED
		}
		if len(disks) > 0 {
			// Both sides have the image below the overlays; only these are copied.
			flags |= libvirt.MIGRATE_NON_SHARED_INC
			parameters.MigrateDisksSet, parameters.MigrateDisks = true, disks
			parameters.DisksURISet, parameters.DisksURI = true, "unix://"+m.Disks
		}
		if err := destination(d, parameters, moved); err != nil {
			return err
		}
		if err := limit(parameters, &flags, m); err != nil {
			return err
		}
		if m.MaxDowntime > 0 {
			if err := setMaxDowntime(d, m.MaxDowntime); err != nil {
				return err
			}
		}
		return d.MigrateToURI3("qemu+unix:///session?socket="+m.Peer, parameters, flags)
	})
	if err != nil {
		return hypervisor.Migrated{}, err
	}
	select {
	case info := <-jobs:
		last := account(&info)
		migrated := hypervisor.Migrated{Progress: &last}
		if info.DowntimeSet {
			migrated.Downtime = time.Duration(info.Downtime) * time.Millisecond
		}
		return migrated, nil
	case <-time.After(accountWait):
	}
	return hypervisor.Migrated{}, nil
}

// destination sets what of the domain is another at the target: the images of moved disks, by name, and on which CPUs
// it runs, if it is pinned to some here.
func destination(
	d *libvirt.Domain, parameters *libvirt.DomainMigrateParameters, moved map[string]hypervisor.MovedDisk,
) error {
	text, err := d.GetXMLDesc(libvirt.DOMAIN_XML_MIGRATABLE)
	if err != nil {
		return err
	}
	free, had, err := hypervisor.WithoutPins(text)
	if err == nil && len(moved) > 0 {
		had = true
		free, err = hypervisor.WithImages(free, moved)
	}
	if had {
		parameters.DestXMLSet, parameters.DestXML = true, free
	}
	return err
}

// limit adds how the domain is to move.
func limit(
	parameters *libvirt.DomainMigrateParameters, flags *libvirt.DomainMigrateFlags, m hypervisor.Migration,
) error {
	if m.Bandwidth > 0 {
		// libvirt counts MiB, and takes 0 for no limit.
		parameters.BandwidthSet, parameters.Bandwidth = true, max(1, m.Bandwidth>>20)
	}
	if m.AutoConverge {
		*flags |= libvirt.MIGRATE_AUTO_CONVERGE
	}
	if m.Unsafe {
		*flags |= libvirt.MIGRATE_UNSAFE
	}
	switch {
	case m.PostCopy && m.Connections > 0:
		return errors.New("post-copy and parallel connections do not go together")
	case m.PostCopy:
		*flags |= libvirt.MIGRATE_POSTCOPY
	case m.Connections > 0:
		*flags |= libvirt.MIGRATE_PARALLEL
		parameters.ParallelConnectionsSet, parameters.ParallelConnections = true, m.Connections
	}
	return nil
}

// MigrationProgress implements hypervisor.Connection.
func (c *connection) MigrationProgress(context.Context) (hypervisor.Progress, error) {
	var out hypervisor.Progress
	err := c.with(func(d *libvirt.Domain) error {
		info, err := d.GetJobStats(0)
		if err != nil {
			return err
		}
		if info.Type != libvirt.DOMAIN_JOB_BOUNDED && info.Type != libvirt.DOMAIN_JOB_UNBOUNDED ||
			info.OperationSet && info.Operation != libvirt.DOMAIN_JOB_OPERATION_MIGRATION_OUT {
			return hypervisor.ErrNoMigration
		}
		out = account(info)
		if info.DiskTotal > 0 && info.MemTotal == 0 {
			memory, err := d.GetMaxMemory() // KiB
			if err != nil {
				return err
			}
			out = out.BeforeMemory(memory << 10)
		}
		return nil
	})
	return out, err
}

// account returns libvirt's statistics of a job.
func account(info *libvirt.DomainJobInfo) hypervisor.Progress {
	p := hypervisor.Progress{
		Elapsed:   time.Duration(info.TimeElapsed) * time.Millisecond,
		DataTotal: info.DataTotal, DataProcessed: info.DataProcessed, DataRemaining: info.DataRemaining,
		MemoryRemaining: info.MemRemaining, DiskRemaining: info.DiskRemaining,
		Bandwidth: info.MemBps, Iteration: info.MemIteration,
		DirtyRate:        info.MemDirtyRate * info.MemPageSize, // in pages
		ExpectedDowntime: time.Duration(info.Downtime) * time.Millisecond,
	}
	if info.AutoConvergeThrottle > 0 {
		p.Throttle = uint(info.AutoConvergeThrottle)
	}
	return p
}

// SetMaxDowntime implements hypervisor.Connection.
func (c *connection) SetMaxDowntime(_ context.Context, limit time.Duration) error {
	return c.with(func(d *libvirt.Domain) error { return setMaxDowntime(d, limit) })
}

func setMaxDowntime(d *libvirt.Domain, limit time.Duration) error {
	return d.MigrateSetMaxDowntime(uint64(max(1, limit.Milliseconds())), 0)
}

// StartPostCopy implements hypervisor.Connection.
func (c *connection) StartPostCopy(context.Context) error {
	return c.with(func(d *libvirt.Domain) error { return d.MigrateStartPostCopy(0) })
}

// completed takes libvirt's account of a job that has ended.
func (c *connection) completed(info libvirt.DomainJobInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case c.jobs <- info: // never, when nobody waits: the channel is nil
	default:
	}
}

func (c *connection) AbortMigration(context.Context) error {
	return c.with(func(d *libvirt.Domain) error { return d.AbortJob() })
}
