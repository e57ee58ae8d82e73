package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// memory is a hypervisor in memory: a daemon that comes and goes, and a domain that outlives it.
type memory struct {
	pins []string
	mu   sync.Mutex
	conn *memoryConnection
	// busy keeps looks at the domain waiting until it is closed; nil does not.
	busy chan struct{}
	// domain is nil when there is none.
	domain *hypervisor.Domain
	xml    string
	// down says that the daemon is dead; up is closed when it is back.
	down bool
	up   chan struct{}
	// createErr makes Create fail; onCreate runs while it is under way, on the daemon's side.
	createErr error
	onCreate  func()
	// obeys says that the guest reacts to the power button from the n-th press on (0: never).
	obeys   int
	presses int
	// attachErr makes Attach fail; clings says that the guest does not let go of disks.
	attachErr error
	clings    bool
	agent     func(command string) (string, error)
	// limits are those of disks, by target; limitErr makes LimitDisk fail.
	limits   map[string]hypervisor.DiskLimits
	limitErr error
	// sizes are the sizes of disks for the guest, by target; grown what GrowDisk was asked, growErr makes it fail.
	sizes   map[string]int64
	grown   []string
	growErr error
	// resumeErr makes Resume fail.
	resumeErr error
	// onSave runs while memory is being saved.
	onSave func() error
	// onMigrate makes a migration, onAbort ends it.
	onMigrate func(hypervisor.Migration) (hypervisor.Migrated, error)
	onAbort   func() error
	// progress is what the migration's account says; nil is none. hurried are the means that were taken.
	progress func() *hypervisor.Progress
	hurried  []string
	// downtimes are the limits that were set while it was under way.
	downtimes []time.Duration
	// silent keeps accounts of a migration waiting until it is closed; nil does not.
	silent chan struct{}
}

// memoryConnection is one connection to it.
type memoryConnection struct {
	m      *memory
	events chan hypervisor.Event
	lost   bool
}

var errLost = errors.New("the connection is lost")

func newMemory() *memory { return &memory{up: make(chan struct{}), obeys: 1} }

func (m *memory) dial(ctx context.Context) (hypervisor.Connection, error) {
	for {
		m.mu.Lock()
		if !m.down {
			m.conn = &memoryConnection{m: m, events: make(chan hypervisor.Event, 100)}
			defer m.mu.Unlock()
			return m.conn, nil
		}
		up := m.up
		m.mu.Unlock()
		select {
		case <-up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// crash kills the daemon; restart brings it back.
func (m *memory) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = true
	m.conn.lost = true
	close(m.conn.events)
	m.conn = nil
}

func (m *memory) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = false
	close(m.up)
	m.up = make(chan struct{})
}

// change changes the domain and says so.
func (m *memory) change(f func(*hypervisor.Domain)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.domain)
	m.notify(hypervisor.Event{})
}

// end ends the domain.
func (m *memory) end(end hypervisor.End) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(end)
}

// endAny ends the domain if there is one.
func (m *memory) endAny() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.domain != nil {
		m.endLocked(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
	}
}

func (m *memory) endLocked(end hypervisor.End) {
	m.domain = nil
	m.notify(hypervisor.Event{End: &end})
}

func (m *memory) notify(e hypervisor.Event) {
	if m.conn != nil {
		m.conn.events <- e
	}
}

// use runs f if the connection lives and there is a domain.
func (c *memoryConnection) use(f func(m *memory) error) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.lost {
		return errLost
	}
	if c.m.domain == nil {
		return hypervisor.ErrNoDomain
	}
	return f(c.m)
}

func (c *memoryConnection) Create(_ context.Context, xml string, paused bool) error {
	c.m.mu.Lock()
	if c.lost {
		c.m.mu.Unlock()
		return errLost
	}
	if err := c.m.createErr; err != nil {
		c.m.notify(hypervisor.Event{End: &hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"}})
		c.m.mu.Unlock()
		return err
	}
	c.m.xml = xml
	c.m.domain = &hypervisor.Domain{
		Reason: "booted", Machine: "pc-q35-10.0", Emulated: true, Memory: 1 << 27, MemoryAtBoot: 1 << 27,
	}
	if paused {
		c.m.domain.Run, c.m.domain.Reason = hypervisor.Paused, "user"
	}
	c.m.notify(hypervisor.Event{Started: true})
	hook := c.m.onCreate
	c.m.mu.Unlock()
	if hook != nil {
		hook()
	}
	return nil
}

func (c *memoryConnection) Domain(context.Context) (d hypervisor.Domain, err error) {
	c.m.mu.Lock()
	busy := c.m.busy
	c.m.mu.Unlock()
	if busy != nil {
		<-busy
	}
	err = c.use(func(m *memory) error { d = *m.domain; return nil })
	return d, err
}

func (c *memoryConnection) PowerButton(context.Context) error {
	return c.use(func(m *memory) error {
		m.presses++
		if m.obeys > 0 && m.presses >= m.obeys && m.domain.Run == hypervisor.Running {
			m.endLocked(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
		}
		return nil
	})
}

func (c *memoryConnection) Destroy(context.Context) error {
	return c.use(func(m *memory) error {
		m.endLocked(hypervisor.End{Outcome: hypervisor.Destroyed, Reason: "destroyed"})
		return nil
	})
}

func (c *memoryConnection) Suspend(context.Context) error {
	return c.use(func(m *memory) error {
		m.domain.Run, m.domain.Reason = hypervisor.Paused, "user"
		m.notify(hypervisor.Event{})
		return nil
	})
}

func (c *memoryConnection) Resume(context.Context) error {
	return c.use(func(m *memory) error {
		if m.resumeErr != nil {
			return m.resumeErr
		}
		m.domain.Run, m.domain.Reason = hypervisor.Running, "unpaused"
		m.notify(hypervisor.Event{})
		return nil
	})
}

func (c *memoryConnection) Reset(context.Context) error {
	return c.use(func(*memory) error { return nil })
}

func (c *memoryConnection) Reboot(context.Context) error {
	return c.use(func(*memory) error { return nil })
}

// Dump writes a file that is no core.
func (c *memoryConnection) Dump(_ context.Context, path string) error {
	return os.WriteFile(path, []byte("ELF"), 0o600)
}

// SaveMemory writes a file after onSave has returned.
func (c *memoryConnection) SaveMemory(_ context.Context, path string) error {
	c.m.mu.Lock()
	hook := c.m.onSave
	c.m.mu.Unlock()
	if hook != nil {
		if err := hook(); err != nil {
			return err
		}
	}
	return c.use(func(m *memory) error {
		if m.domain.Run != hypervisor.Paused {
			return errors.New("the domain runs")
		}
		return os.WriteFile(path, []byte("memory"), 0o600)
	})
}

// Restore makes the domain of such a file.
func (c *memoryConnection) Restore(ctx context.Context, path string) error {
	if _, err := os.ReadFile(path); err != nil {
		return err
	}
	return c.Create(ctx, "restored from "+path, true)
}

func (c *memoryConnection) Stats(context.Context) (hypervisor.Stats, error) {
	return hypervisor.Stats{
		CPUTime: 7, VCPUs: []hypervisor.VCPUStats{{State: 1, Time: 6}}, MemoryGuest: 128 << 20,
		MemoryResident: 200 << 20,
		Interfaces: []hypervisor.InterfaceStats{
			{Name: "tap0", Received: hypervisor.TrafficStats{Bytes: 1}, Sent: hypervisor.TrafficStats{Bytes: 2}},
		},
		Disks: []hypervisor.DiskStats{{
			Name: "vda", Read: hypervisor.RequestStats{Bytes: 3, Requests: 5},
			Write: hypervisor.RequestStats{Bytes: 4, Requests: 6},
		}},
	}, nil
}

func (c *memoryConnection) Screenshot(_ context.Context, w io.Writer) error {
	return c.use(func(*memory) error {
		_, err := io.WriteString(w, "a picture")
		return err
	})
}

func (c *memoryConnection) Attach(_ context.Context, xml string) error {
	return c.use(func(m *memory) error {
		if m.attachErr != nil {
			return m.attachErr
		}
		if strings.HasPrefix(xml, "<controller") {
			m.domain.SCSI = true
			return nil
		}
		if strings.HasPrefix(xml, "<memory") {
			return m.plug(xml)
		}
		if strings.HasPrefix(xml, "<interface") {
			var nic libvirtxml.DomainInterface
			if err := nic.Unmarshal(xml); err != nil {
				return err
			}
			links := maps.Clone(m.domain.Links)
			links[nic.Alias.Name] = "up"
			m.domain.Links = links
			m.notify(hypervisor.Event{})
			return nil
		}
		var disk libvirtxml.DomainDisk
		if err := disk.Unmarshal(xml); err != nil {
			return err
		}
		disks := maps.Clone(m.domain.Disks)
		if disks == nil {
			disks = map[string]string{}
		}
		disks[disk.Alias.Name] = disk.Target.Dev
		m.domain.Disks = disks
		if disk.Driver != nil && disk.Driver.IOThread != nil {
			m.domain.DiskThreads = map[string]uint{disk.Alias.Name: *disk.Driver.IOThread}
		}
		m.notify(hypervisor.Event{})
		return nil
	})
}

func (c *memoryConnection) AddThread(_ context.Context, id uint) error {
	return c.use(func(m *memory) error {
		m.domain.Threads = append(slices.Clone(m.domain.Threads), id)
		return nil
	})
}

func (c *memoryConnection) RemoveThread(_ context.Context, id uint) error {
	return c.use(func(m *memory) error {
		m.domain.Threads = slices.DeleteFunc(slices.Clone(m.domain.Threads), func(other uint) bool {
			return other == id
		})
		return nil
	})
}

func (c *memoryConnection) SetMedium(_ context.Context, alias, xml string) error {
	return c.use(func(m *memory) error {
		if m.clings {
			return errors.New("the tray is locked")
		}
		empty := maps.Clone(m.domain.Empty)
		if delete(empty, alias); xml == "" {
			empty[alias] = true
		}
		m.domain.Empty = empty
		m.notify(hypervisor.Event{})
		return nil
	})
}

func (c *memoryConnection) DiskSize(_ context.Context, target string) (size int64, err error) {
	err = c.use(func(m *memory) error { size = m.sizes[target]; return nil })
	return size, err
}

func (c *memoryConnection) GrowDisk(_ context.Context, target string, bytes int64) error {
	return c.use(func(m *memory) error {
		m.grown = append(m.grown, fmt.Sprint(target, " ", bytes))
		if m.growErr == nil {
			m.sizes[target] = bytes
		}
		return m.growErr
	})
}

func (c *memoryConnection) RequestMemory(_ context.Context, bytes int64) error {
	return c.use(func(m *memory) error {
		plugged := *m.domain.Plugged
		plugged.Requested, plugged.Current = bytes, bytes
		m.domain.Plugged, m.domain.Memory = &plugged, m.domain.MemoryAtBoot+bytes
		m.notify(hypervisor.Event{})
		return nil
	})
}

// plug takes a memory device, of which the guest makes use at once.
func (m *memory) plug(xml string) error {
	var dev libvirtxml.DomainMemorydev
	if err := dev.Unmarshal(xml); err != nil {
		return err
	}
	requested := int64(dev.Target.Requested.Value)
	m.domain.Plugged = &hypervisor.PluggedMemory{
		Size: int64(dev.Target.Size.Value), Requested: requested, Current: requested,
	}
	m.domain.Memory = m.domain.MemoryAtBoot + requested
	m.notify(hypervisor.Event{})
	return nil
}

func (c *memoryConnection) SetVCPUs(_ context.Context, n uint) error {
	return c.use(func(m *memory) error {
		m.domain.VCPUs = n
		m.notify(hypervisor.Event{})
		return nil
	})
}

func (c *memoryConnection) PinVCPU(_ context.Context, vcpu uint, cpus []int) error {
	return c.use(func(m *memory) error {
		m.pins = append(m.pins, fmt.Sprint("vCPU ", vcpu, " on ", len(cpus)))
		return nil
	})
}

func (c *memoryConnection) PinEmulator(_ context.Context, cpus []int) error {
	return c.use(func(m *memory) error {
		m.pins = append(m.pins, fmt.Sprint("QEMU on ", len(cpus)))
		return nil
	})
}

func (c *memoryConnection) Detach(_ context.Context, alias string) error {
	return c.use(func(m *memory) error {
		if m.clings {
			return nil
		}
		disks := maps.Clone(m.domain.Disks)
		delete(disks, alias)
		m.domain.Disks = disks
		empty := maps.Clone(m.domain.Empty)
		delete(empty, alias)
		m.domain.Empty = empty
		links := maps.Clone(m.domain.Links)
		delete(links, alias)
		m.domain.Links = links
		m.notify(hypervisor.Event{})
		return nil
	})
}

func (c *memoryConnection) LimitDisk(_ context.Context, target string, limits hypervisor.DiskLimits) error {
	return c.use(func(m *memory) error {
		if m.limits == nil {
			m.limits = map[string]hypervisor.DiskLimits{}
		}
		m.limits[target] = limits
		return m.limitErr
	})
}

func (c *memoryConnection) SetLink(_ context.Context, alias string, up bool) error {
	return c.use(func(m *memory) error {
		links := maps.Clone(m.domain.Links)
		links[alias] = map[bool]string{true: "up", false: "down"}[up]
		m.domain.Links = links
		return nil
	})
}

func (c *memoryConnection) Agent(_ context.Context, command string) (string, error) {
	var reply func(string) (string, error)
	if err := c.use(func(m *memory) error {
		if reply = m.agent; m.domain.Run == hypervisor.Paused {
			return hypervisor.ErrPaused
		}
		return nil
	}); err != nil {
		return "", err
	}
	return reply(command)
}

func (c *memoryConnection) Migrate(_ context.Context, to hypervisor.Migration) (hypervisor.Migrated, error) {
	var hook func(hypervisor.Migration) (hypervisor.Migrated, error)
	if err := c.use(func(m *memory) error { hook = m.onMigrate; return nil }); err != nil {
		return hypervisor.Migrated{}, err
	}
	result, err := hook(to)
	if err == nil {
		c.m.end(hypervisor.End{Outcome: hypervisor.Moved, Reason: "migrated"})
	}
	return result, err
}

func (c *memoryConnection) AbortMigration(context.Context) error {
	var hook func() error
	if err := c.use(func(m *memory) error { hook = m.onAbort; return nil }); err != nil {
		return err
	}
	return hook()
}

func (c *memoryConnection) MigrationProgress(context.Context) (out hypervisor.Progress, err error) {
	c.m.mu.Lock()
	silent := c.m.silent
	c.m.mu.Unlock()
	if silent != nil {
		<-silent
	}
	return out, c.use(func(m *memory) error {
		if m.progress == nil {
			return hypervisor.ErrNoMigration
		}
		p := m.progress()
		if p == nil {
			return hypervisor.ErrNoMigration
		}
		out = *p
		return nil
	})
}

func (c *memoryConnection) SetMaxDowntime(_ context.Context, limit time.Duration) error {
	return c.use(func(m *memory) error {
		m.downtimes = append(m.downtimes, limit)
		return nil
	})
}

func (c *memoryConnection) StartPostCopy(context.Context) error {
	return c.use(func(m *memory) error {
		m.hurried = append(m.hurried, "post-copy")
		return nil
	})
}

func (c *memoryConnection) Events() <-chan hypervisor.Event { return c.events }

func (c *memoryConnection) Close() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if !c.lost {
		c.lost = true
		close(c.events)
		if c.m.conn == c {
			c.m.conn = nil // nobody hears what comes
		}
	}
	return nil
}
