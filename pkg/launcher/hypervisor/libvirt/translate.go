//go:build cgo && libvirt_dlopen

package libvirt

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// translate turns libvirt's errors into those that a launcher acts on.
func translate(err error) error {
	var e libvirt.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case libvirt.ERR_NO_DOMAIN:
		return hypervisor.ErrNoDomain
	case libvirt.ERR_XML_ERROR, libvirt.ERR_XML_DETAIL, libvirt.ERR_XML_INVALID_SCHEMA, libvirt.ERR_CONFIG_UNSUPPORTED,
		libvirt.ERR_CPU_INCOMPATIBLE:
		return fmt.Errorf("%w: %s", hypervisor.ErrInvalid, hypervisor.Message(e.Message))
	}
	if hypervisor.NoFreePort(e.Message) {
		return errors.New("the machine has no free PCIe port left; use bus scsi, or restart the VM")
	}
	if d := hypervisor.Diagnose(e.Message); d != nil {
		return d
	}
	return errors.New(hypervisor.Message(e.Message))
}

// refusedByAgent is in libvirt's message of a command that the agent did not carry out; the agent's words follow
// the command's name.
const refusedByAgent = "unable to execute QEMU agent command '"

// agentError turns the errors of a command for the guest agent into those that a launcher acts on. libvirt asks no
// agent of a domain that is paused, in the words that it has for one that is gone, too: state returns which it is.
func agentError(err error, state func() (libvirt.DomainState, int, error)) error {
	var e libvirt.Error
	if !errors.As(err, &e) {
		return err
	}
	if _, rest, ok := strings.Cut(e.Message, refusedByAgent); ok {
		_, words, _ := strings.Cut(rest, "': ")
		return &hypervisor.AgentError{Message: hypervisor.Message(words)}
	}
	switch e.Code {
	case libvirt.ERR_NO_DOMAIN:
		return hypervisor.ErrNoDomain
	case libvirt.ERR_OPERATION_INVALID:
		if strings.Contains(e.Message, "domain is not running") {
			return notAsked(state())
		}
	case libvirt.ERR_AGENT_COMMAND_FAILED:
		return &hypervisor.AgentError{Message: hypervisor.Message(e.Message)}
	case libvirt.ERR_AGENT_UNRESPONSIVE, libvirt.ERR_AGENT_UNSYNCED, libvirt.ERR_AGENT_COMMAND_TIMEOUT,
		libvirt.ERR_ARGUMENT_UNSUPPORTED:
		return fmt.Errorf("%w: %s", hypervisor.ErrNoAgent,
			strings.TrimPrefix(hypervisor.Message(e.Message), "Guest agent is not responding: "))
	case libvirt.ERR_RPC:
		return fmt.Errorf("%w: %s", hypervisor.ErrTooLarge, hypervisor.Message(e.Message))
	}
	return err
}

// notAsked returns why libvirt has not asked the agent of a domain whose state, asked for afterwards, is this.
func notAsked(state libvirt.DomainState, _ int, err error) error {
	switch {
	case err != nil:
		return translate(err)
	case state == libvirt.DOMAIN_SHUTDOWN, state == libvirt.DOMAIN_SHUTOFF, state == libvirt.DOMAIN_CRASHED:
		return hypervisor.ErrNoDomain
	}
	return hypervisor.ErrPaused // one that runs has been resumed meanwhile
}

// lifecycle turns libvirt's event into ours: the end of the domain, its start, or something changed.
func lifecycle(e *libvirt.DomainEventLifecycle) hypervisor.Event {
	if e.Event == libvirt.DOMAIN_EVENT_SUSPENDED {
		detail := libvirt.DomainEventSuspendedDetailType(e.Detail)
		return hypervisor.Event{StoppedToMove: detail == libvirt.DOMAIN_EVENT_SUSPENDED_MIGRATED}
	}
	if e.Event != libvirt.DOMAIN_EVENT_STOPPED {
		return hypervisor.Event{Started: e.Event == libvirt.DOMAIN_EVENT_STARTED}
	}
	end := hypervisor.End{Outcome: hypervisor.Crashed, Reason: hypervisor.ReasonFailed}
	switch libvirt.DomainEventStoppedDetailType(e.Detail) {
	case libvirt.DOMAIN_EVENT_STOPPED_SHUTDOWN:
		end = hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"}
	case libvirt.DOMAIN_EVENT_STOPPED_DESTROYED:
		end = hypervisor.End{Outcome: hypervisor.Destroyed, Reason: "destroyed"}
	case libvirt.DOMAIN_EVENT_STOPPED_MIGRATED:
		end = hypervisor.End{Outcome: hypervisor.Moved, Reason: "migrated"}
	case libvirt.DOMAIN_EVENT_STOPPED_CRASHED: // of QEMU's own end libvirt says that it failed
		end.Reason = hypervisor.ReasonPanicked
	}
	return hypervisor.Event{End: &end}
}

// description holds the parts that are read from a domain's XML.
type description struct {
	Type string `xml:"type,attr"`
	OS   struct {
		Type struct {
			Machine string `xml:"machine,attr"`
		} `xml:"type"`
	} `xml:"os"`
	Memory        quantity `xml:"memory"`
	CurrentMemory quantity `xml:"currentMemory"`
	VCPU          struct {
		Current uint `xml:"current,attr"`
		Most    uint `xml:",chardata"`
	} `xml:"vcpu"`
	Plugged []struct {
		Model     string   `xml:"model,attr"`
		Size      quantity `xml:"target>size"`
		Requested quantity `xml:"target>requested"`
		Current   quantity `xml:"target>current"`
	} `xml:"devices>memory"`
	Channels []struct {
		Target struct {
			Name  string `xml:"name,attr"`
			State string `xml:"state,attr"`
		} `xml:"target"`
	} `xml:"devices>channel"`
	Threads []struct {
		ID uint `xml:"id,attr"`
	} `xml:"iothreadids>iothread"`
	Disks []struct {
		Device string `xml:"device,attr"`
		// Source is there without an image once that was taken out.
		Source struct {
			File string `xml:"file,attr"`
			Dev  string `xml:"dev,attr"`
		} `xml:"source"`
		Driver struct {
			IOThread uint `xml:"iothread,attr"`
		} `xml:"driver"`
		Alias struct {
			Name string `xml:"name,attr"`
		} `xml:"alias"`
		Target struct {
			Dev string `xml:"dev,attr"`
		} `xml:"target"`
	} `xml:"devices>disk"`
	Interfaces []struct {
		Alias struct {
			Name string `xml:"name,attr"`
		} `xml:"alias"`
		Link struct {
			State string `xml:"state,attr"`
		} `xml:"link"`
	} `xml:"devices>interface"`
	Controllers []struct {
		Type string `xml:"type,attr"`
	} `xml:"devices>controller"`
}

// quantity is in KiB: libvirt always writes that unit.
type quantity struct {
	KiB int64 `xml:",chardata"`
}

func describe(state libvirt.DomainState, reason int, text string) (hypervisor.Domain, error) {
	var x description
	if err := xml.Unmarshal([]byte(text), &x); err != nil {
		return hypervisor.Domain{}, fmt.Errorf("read the domain's XML: %w", err)
	}
	d := hypervisor.Domain{
		Emulated:     x.Type == "qemu",
		Machine:      x.OS.Type.Machine,
		MemoryAtBoot: x.Memory.KiB << 10,
		Memory:       x.CurrentMemory.KiB << 10,
	}
	d.VCPUs, d.MaxVCPUs = x.VCPU.Most, x.VCPU.Most
	if x.VCPU.Current > 0 {
		d.VCPUs = x.VCPU.Current
	}
	for _, m := range x.Plugged {
		if m.Model != "virtio-mem" {
			continue
		}
		d.Plugged = &hypervisor.PluggedMemory{
			Size: m.Size.KiB << 10, Requested: m.Requested.KiB << 10,
			Current: m.Current.KiB << 10,
		}
		// What libvirt counts as memory has the whole device in it.
		d.MemoryAtBoot -= d.Plugged.Size
		d.Memory = d.MemoryAtBoot + d.Plugged.Current
	}
	for _, thread := range x.Threads {
		d.Threads = append(d.Threads, thread.ID)
	}
	d.Disks, d.Empty, d.DiskThreads = make(map[string]string, len(x.Disks)), map[string]bool{}, map[string]uint{}
	for _, disk := range x.Disks {
		if strings.HasPrefix(disk.Alias.Name, "ua-") {
			d.Disks[disk.Alias.Name] = disk.Target.Dev
			if disk.Driver.IOThread > 0 {
				d.DiskThreads[disk.Alias.Name] = disk.Driver.IOThread
			}
			if disk.Device == "cdrom" && disk.Source.File == "" && disk.Source.Dev == "" {
				d.Empty[disk.Alias.Name] = true
			}
		}
	}
	d.Links = make(map[string]string, len(x.Interfaces))
	for _, nic := range x.Interfaces {
		if strings.HasPrefix(nic.Alias.Name, "ua-") {
			d.Links[nic.Alias.Name] = cmp.Or(nic.Link.State, "up")
		}
	}
	for _, c := range x.Controllers {
		d.SCSI = d.SCSI || c.Type == "scsi"
	}
	for _, c := range x.Channels {
		if c.Target.Name == "org.qemu.guest_agent.0" {
			d.AgentConnected = c.Target.State == "connected"
		}
	}
	switch state {
	case libvirt.DOMAIN_PAUSED, libvirt.DOMAIN_PMSUSPENDED:
		d.Run, d.Reason = hypervisor.Paused, pausedReason(libvirt.DomainPausedReason(reason))
	case libvirt.DOMAIN_SHUTDOWN, libvirt.DOMAIN_SHUTOFF:
		d.Run, d.Reason = hypervisor.Stopping, "shutdown"
	case libvirt.DOMAIN_CRASHED:
		d.Run, d.Reason = hypervisor.Paused, "crashed"
	default:
		d.Run, d.Reason = hypervisor.Running, runningReason(libvirt.DomainRunningReason(reason))
	}
	return d, nil
}

func runningReason(r libvirt.DomainRunningReason) string {
	switch r {
	case libvirt.DOMAIN_RUNNING_BOOTED:
		return "booted"
	case libvirt.DOMAIN_RUNNING_UNPAUSED:
		return "unpaused"
	case libvirt.DOMAIN_RUNNING_MIGRATED:
		return "migrated"
	case libvirt.DOMAIN_RUNNING_POSTCOPY:
		return hypervisor.ReasonPostCopy
	case libvirt.DOMAIN_RUNNING_WAKEUP:
		return "wakeup"
	case libvirt.DOMAIN_RUNNING_CRASHED:
		return "crashed"
	}
	return "running"
}

func pausedReason(r libvirt.DomainPausedReason) string {
	switch r {
	case libvirt.DOMAIN_PAUSED_USER:
		return "user"
	case libvirt.DOMAIN_PAUSED_IOERROR:
		return "ioerror"
	case libvirt.DOMAIN_PAUSED_MIGRATION:
		return "migration"
	case libvirt.DOMAIN_PAUSED_POSTCOPY, libvirt.DOMAIN_PAUSED_POSTCOPY_FAILED:
		return "postcopy"
	case libvirt.DOMAIN_PAUSED_API_ERROR:
		return "api-error"
	case libvirt.DOMAIN_PAUSED_WATCHDOG:
		return "watchdog"
	case libvirt.DOMAIN_PAUSED_CRASHED:
		return "crashed"
	case libvirt.DOMAIN_PAUSED_SHUTTING_DOWN:
		return "shutting-down"
	case libvirt.DOMAIN_PAUSED_STARTING_UP:
		return "starting-up"
	}
	return "paused"
}
