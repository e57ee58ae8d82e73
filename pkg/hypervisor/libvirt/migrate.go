//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/hypervisor"
)

// accountWait is how long to wait for libvirt's account of a migration, which mostly comes before its end.
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
		return d.MigrateToURI3("qemu+unix:///session?socket="+m.Peer, parameters, flags)
	})
	if err != nil {
		return hypervisor.Migrated{}, err
	}
	select {
	case info := <-jobs:
		if info.DowntimeSet {
			return hypervisor.Migrated{Downtime: time.Duration(info.Downtime) * time.Millisecond}, nil
		}
	case <-time.After(accountWait):
	}
	return hypervisor.Migrated{}, nil
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
