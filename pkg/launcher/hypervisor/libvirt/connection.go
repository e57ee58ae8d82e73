//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// eventLoop starts libvirt's event loop, once a process: libvirt has one for all connections and
// no way to end it.
var eventLoop = sync.OnceValue(func() error {
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return fmt.Errorf("start libvirt's event loop: %w", err)
	}
	go func() {
		for {
			// An error here is a timer or descriptor that vanished meanwhile; the loop goes on.
			_ = libvirt.EventRunDefaultImpl()
		}
	}()
	return nil
})

// backlog is the number of events that wait for the launcher; it reads them at once, so more means that it hangs.
const backlog = 64

// connection implements hypervisor.Connection.
type connection struct {
	conn *libvirt.Connect

	mu     sync.Mutex
	events chan hypervisor.Event
	closed bool
	// jobs gets the account of a migration that has ended, when one is waited for.
	jobs chan libvirt.DomainJobInfo
}

// Connect opens a connection to the session daemon at socket and follows the events of its domain. The
// libvirt client has no way to give up, so ctx only says whether to begin.
func Connect(ctx context.Context, socket string) (hypervisor.Connection, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := eventLoop(); err != nil {
		return nil, err
	}
	conn, err := libvirt.NewConnect("qemu+unix:///session?socket=" + socket)
	if err != nil {
		return nil, fmt.Errorf("connect to libvirt: %w", err)
	}
	c := &connection{conn: conn, events: make(chan hypervisor.Event, backlog)}
	if err := c.follow(); err != nil {
		return nil, errors.Join(fmt.Errorf("follow libvirt's events: %w", err), c.Close())
	}
	return c, nil
}

// follow subscribes to what the launcher wants to know.
func (c *connection) follow() error {
	if err := c.conn.RegisterCloseCallback(func(*libvirt.Connect, libvirt.ConnectCloseReason) { c.hangUp() }); err !=
		nil {
		return err
	}
	if _, err := c.conn.DomainEventLifecycleRegister(nil,
		func(_ *libvirt.Connect, _ *libvirt.Domain, e *libvirt.DomainEventLifecycle) {
			c.send(lifecycle(e))
		}); err != nil {
		return err
	}
	changed := func() { c.send(hypervisor.Event{}) }
	if _, err := c.conn.DomainEventAgentLifecycleRegister(nil,
		func(*libvirt.Connect, *libvirt.Domain, *libvirt.DomainEventAgentLifecycle) {
			changed()
		}); err != nil {
		return err
	}
	if _, err := c.conn.DomainEventDeviceAddedRegister(nil,
		func(*libvirt.Connect, *libvirt.Domain, *libvirt.DomainEventDeviceAdded) {
			changed()
		}); err != nil {
		return err
	}
	if _, err := c.conn.DomainEventDeviceRemovedRegister(nil,
		func(*libvirt.Connect, *libvirt.Domain, *libvirt.DomainEventDeviceRemoved) {
			changed()
		}); err != nil {
		return err
	}
	if _, err := c.conn.DomainEventJobCompletedRegister(nil,
		func(_ *libvirt.Connect, _ *libvirt.Domain, e *libvirt.DomainEventJobCompleted) {
			c.completed(e.Info)
		}); err != nil {
		return err
	}
	if _, err := c.conn.DomainEventMemoryDeviceSizeChangeRegister(nil,
		func(*libvirt.Connect, *libvirt.Domain, *libvirt.DomainEventMemoryDeviceSizeChange) {
			changed()
		}); err != nil {
		return err
	}
	_, err := c.conn.DomainEventBalloonChangeRegister(nil,
		func(*libvirt.Connect, *libvirt.Domain, *libvirt.DomainEventBalloonChange) {
			changed()
		})
	return err
}

func (c *connection) send(e hypervisor.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	select {
	case c.events <- e:
	default:
		if e.End == nil && !e.Started {
			return // the waiting ones make the launcher look again, too
		}
		<-c.events
		c.events <- e
	}
}

// hangUp ends the events. It runs in libvirt's event loop when the daemon went away.
func (c *connection) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.events)
	}
}

func (c *connection) Events() <-chan hypervisor.Event { return c.events }

func (c *connection) Close() error {
	c.hangUp()
	if _, err := c.conn.Close(); err != nil {
		return fmt.Errorf("close the connection to libvirt: %w", err)
	}
	return nil
}

func (c *connection) Create(_ context.Context, xml string, paused bool) error {
	var flags libvirt.DomainCreateFlags
	if paused {
		flags = libvirt.DOMAIN_START_PAUSED
	}
	d, err := c.conn.DomainCreateXML(xml, flags)
	if err != nil {
		return translate(err)
	}
	return free(d)
}

// with runs f on the one domain that the daemon has.
func (c *connection) with(f func(*libvirt.Domain) error) error {
	domains, err := c.conn.ListAllDomains(libvirt.CONNECT_LIST_DOMAINS_ACTIVE)
	if err != nil {
		return translate(err)
	}
	if len(domains) == 0 {
		return hypervisor.ErrNoDomain
	}
	err = translate(f(&domains[0]))
	for i := range domains {
		err = errors.Join(err, free(&domains[i]))
	}
	return err
}

func (c *connection) Domain(context.Context) (hypervisor.Domain, error) {
	var out hypervisor.Domain
	err := c.with(func(d *libvirt.Domain) error {
		state, reason, err := d.GetState()
		if err != nil {
			return err
		}
		xml, err := d.GetXMLDesc(0)
		if err != nil {
			return err
		}
		out, err = describe(state, reason, xml)
		return err
	})
	return out, err
}

func (c *connection) PowerButton(context.Context) error {
	return c.with(func(d *libvirt.Domain) error {
		return d.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
	})
}

func (c *connection) Reboot(context.Context) error {
	return c.with(func(d *libvirt.Domain) error {
		return d.Reboot(libvirt.DOMAIN_REBOOT_DEFAULT)
	})
}

func (c *connection) Reset(context.Context) error {
	return c.with(func(d *libvirt.Domain) error { return d.Reset(0) })
}

func (c *connection) Destroy(context.Context) error {
	return c.with(func(d *libvirt.Domain) error { return d.Destroy() })
}

func (c *connection) Suspend(context.Context) error {
	return c.with(func(d *libvirt.Domain) error { return d.Suspend() })
}

func (c *connection) Resume(context.Context) error {
	return c.with(func(d *libvirt.Domain) error { return d.Resume() })
}

func (c *connection) Attach(_ context.Context, xml string) error {
	return c.with(func(d *libvirt.Domain) error {
		return d.AttachDeviceFlags(xml, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
	})
}

func (c *connection) Detach(_ context.Context, alias string) error {
	return c.with(func(d *libvirt.Domain) error {
		err := d.DetachDeviceAlias(alias, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
		var e libvirt.Error
		if errors.As(err, &e) && (e.Code == libvirt.ERR_DEVICE_MISSING || hypervisor.Unplugging(e.Message)) {
			return nil // gone, or asked before
		}
		return err
	})
}

func (c *connection) AddThread(_ context.Context, id uint) error {
	return c.with(func(d *libvirt.Domain) error { return d.AddIOThread(id, libvirt.DOMAIN_AFFECT_LIVE) })
}

func (c *connection) RemoveThread(_ context.Context, id uint) error {
	return c.with(func(d *libvirt.Domain) error { return d.DelIOThread(id, libvirt.DOMAIN_AFFECT_LIVE) })
}

func (c *connection) SetMedium(_ context.Context, alias, medium string) error {
	return c.with(func(d *libvirt.Domain) error {
		text, err := d.GetXMLDesc(0)
		if err != nil {
			return err
		}
		device, err := hypervisor.WithMedium(text, alias, medium)
		if err != nil {
			return err
		}
		return d.UpdateDeviceFlags(device, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
	})
}

func (c *connection) RequestMemory(_ context.Context, bytes int64) error {
	return c.with(func(d *libvirt.Domain) error {
		text, err := d.GetXMLDesc(0)
		if err != nil {
			return err
		}
		device, err := hypervisor.RequestedMemory(text, bytes)
		if err != nil {
			return err
		}
		return d.UpdateDeviceFlags(device, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
	})
}

func (c *connection) SetVCPUs(_ context.Context, n uint) error {
	return c.with(func(d *libvirt.Domain) error { return d.SetVcpusFlags(n, libvirt.DOMAIN_VCPU_LIVE) })
}

func (c *connection) PinVCPU(_ context.Context, vcpu uint, cpus []int) error {
	return c.with(func(d *libvirt.Domain) error {
		return d.PinVcpuFlags(vcpu, cpuMap(cpus), libvirt.DOMAIN_AFFECT_LIVE)
	})
}

func (c *connection) PinEmulator(_ context.Context, cpus []int) error {
	return c.with(func(d *libvirt.Domain) error { return d.PinEmulator(cpuMap(cpus), libvirt.DOMAIN_AFFECT_LIVE) })
}

func cpuMap(cpus []int) []bool {
	out := make([]bool, slices.Max(cpus)+1)
	for _, id := range cpus {
		out[id] = true
	}
	return out
}

// agentTimeout is the guest agent's timeout when the caller sets none, and maxAgentTimeout the longest, seconds.
const (
	agentTimeout    = 5
	maxAgentTimeout = 120
)

func (c *connection) Agent(ctx context.Context, command string) (string, error) {
	if len(command) > hypervisor.MaxAgentCommand {
		return "", fmt.Errorf("%w: a command of %d bytes", hypervisor.ErrTooLarge, len(command))
	}
	timeout := libvirt.DomainQemuAgentCommandTimeout(agentTimeout)
	if deadline, ok := ctx.Deadline(); ok {
		seconds := math.Ceil(time.Until(deadline).Seconds())
		timeout = libvirt.DomainQemuAgentCommandTimeout(min(max(1, seconds), maxAgentTimeout))
	}
	var reply string
	err := c.with(func(d *libvirt.Domain) error {
		var err error
		reply, err = d.QemuAgentCommand(command, timeout, 0)
		return agentError(err, d.GetState)
	})
	return reply, err
}

func free(d *libvirt.Domain) error {
	if err := d.Free(); err != nil {
		return fmt.Errorf("free a libvirt domain: %w", err)
	}
	return nil
}
