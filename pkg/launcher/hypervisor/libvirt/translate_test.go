//go:build cgo && libvirt_dlopen

package libvirt

import (
	"errors"
	"io"
	"reflect"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

func TestTranslate(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		is   error
		text string
	}{
		"no domain": {
			libvirt.Error{Code: libvirt.ERR_NO_DOMAIN, Message: "Domain not found"},
			hypervisor.ErrNoDomain,
			hypervisor.ErrNoDomain.Error(),
		},
		"a domain that libvirt refuses": {
			libvirt.Error{Code: libvirt.ERR_CONFIG_UNSUPPORTED, Message: "unsupported configuration: no such bus"},
			hypervisor.ErrInvalid, "",
		},
		"no port left": {
			libvirt.Error{Code: libvirt.ERR_INTERNAL_ERROR, Message: "internal error: No more available PCI slots"},
			nil, "the machine has no free PCIe port left; use bus scsi, or restart the VM",
		},
		"not libvirt's": {io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			got := translate(c.err)
			if c.is != nil && !errors.Is(got, c.is) || c.text != "" && got.Error() != c.text {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestAgentError(t *testing.T) {
	refused := libvirt.Error{
		Code:    libvirt.ERR_INTERNAL_ERROR,
		Message: "internal error: unable to execute QEMU agent command 'guest-exec': Guest agent command failed",
	}
	var agent *hypervisor.AgentError
	gone := func() (libvirt.DomainState, int, error) {
		return libvirt.DOMAIN_NOSTATE, 0, libvirt.Error{Code: libvirt.ERR_NO_DOMAIN}
	}
	if err := agentError(refused, gone); !errors.As(err, &agent) || agent.Message != "Guest agent command failed" {
		t.Errorf("refused by the agent: %v", err)
	}
	off := libvirt.Error{
		Code: libvirt.ERR_OPERATION_INVALID, Message: "Requested operation is not valid: domain is not running",
	}
	if err := agentError(off, gone); !errors.Is(err, hypervisor.ErrNoDomain) {
		t.Errorf("a guest that is gone: %v", err)
	}
	for state, want := range map[libvirt.DomainState]error{
		libvirt.DOMAIN_PAUSED:      hypervisor.ErrPaused,
		libvirt.DOMAIN_PMSUSPENDED: hypervisor.ErrPaused,
		libvirt.DOMAIN_RUNNING:     hypervisor.ErrPaused, // until just now
		libvirt.DOMAIN_SHUTDOWN:    hypervisor.ErrNoDomain,
		libvirt.DOMAIN_SHUTOFF:     hypervisor.ErrNoDomain,
		libvirt.DOMAIN_CRASHED:     hypervisor.ErrNoDomain,
	} {
		err := agentError(off, func() (libvirt.DomainState, int, error) { return state, 0, nil })
		if !errors.Is(err, want) || errors.Is(err, hypervisor.ErrNoAgent) != errors.Is(want, hypervisor.ErrPaused) {
			t.Errorf("state %d: %v, want %v", state, err, want)
		}
	}
	for code, want := range map[libvirt.ErrorNumber]error{
		libvirt.ERR_AGENT_UNRESPONSIVE:    hypervisor.ErrNoAgent,
		libvirt.ERR_AGENT_UNSYNCED:        hypervisor.ErrNoAgent,
		libvirt.ERR_AGENT_COMMAND_TIMEOUT: hypervisor.ErrNoAgent,
		libvirt.ERR_RPC:                   hypervisor.ErrTooLarge,
	} {
		if err := agentError(libvirt.Error{Code: code, Message: "words"}, gone); !errors.Is(err, want) {
			t.Errorf("code %d: %v, want %v", code, err, want)
		}
	}
	if err := agentError(io.EOF, gone); !errors.Is(err, io.EOF) {
		t.Errorf("not libvirt's: %v", err)
	}
}

func TestLifecycle(t *testing.T) {
	for detail, want := range map[libvirt.DomainEventStoppedDetailType]hypervisor.End{
		libvirt.DOMAIN_EVENT_STOPPED_SHUTDOWN:  {Outcome: hypervisor.Shutdown, Reason: "shutdown"},
		libvirt.DOMAIN_EVENT_STOPPED_DESTROYED: {Outcome: hypervisor.Destroyed, Reason: "destroyed"},
		libvirt.DOMAIN_EVENT_STOPPED_MIGRATED:  {Outcome: hypervisor.Moved, Reason: "migrated"},
		libvirt.DOMAIN_EVENT_STOPPED_CRASHED:   {Outcome: hypervisor.Crashed, Reason: hypervisor.ReasonPanicked},
		libvirt.DOMAIN_EVENT_STOPPED_FAILED:    {Outcome: hypervisor.Crashed, Reason: "failed"},
	} {
		got := lifecycle(&libvirt.DomainEventLifecycle{Event: libvirt.DOMAIN_EVENT_STOPPED, Detail: int(detail)})
		if got.End == nil || *got.End != want {
			t.Errorf("stopped, detail %d: %+v, want %+v", detail, got.End, want)
		}
	}
	if got := lifecycle(&libvirt.DomainEventLifecycle{Event: libvirt.DOMAIN_EVENT_RESUMED}); got.End != nil {
		t.Errorf("a domain that is resumed has ended: %+v", got.End)
	}
	for event, want := range map[libvirt.DomainEventType]bool{
		libvirt.DOMAIN_EVENT_STARTED: true, libvirt.DOMAIN_EVENT_RESUMED: false, libvirt.DOMAIN_EVENT_DEFINED: false,
		libvirt.DOMAIN_EVENT_STOPPED: false,
	} {
		if got := lifecycle(&libvirt.DomainEventLifecycle{Event: event}); got.Started != want {
			t.Errorf("event %d: started %v", event, got.Started)
		}
	}
}

const domainXML = `<domain type='qemu'>
  <memory unit='KiB'>3145728</memory><currentMemory unit='KiB'>3145728</currentMemory>
  <vcpu current='2'>4</vcpu>
  <iothreadids><iothread id='7'/></iothreadids>
  <os><type machine='pc-q35-10.0'>hvm</type></os>
  <devices>
    <memory model='virtio-mem'><target><size unit='KiB'>2097152</size><requested unit='KiB'>1048576</requested><current unit='KiB'>524288</current></target></memory>
    <disk device='disk'><source file='/a'/><driver iothread='7'/><alias name='ua-root'/><target dev='vda'/></disk>
    <disk device='cdrom'><alias name='ua-tray'/><target dev='sda'/></disk>
    <disk device='disk'><alias name='not-ours'/><target dev='vdb'/></disk>
    <interface><alias name='ua-default'/></interface>
    <interface><alias name='ua-second'/><link state='down'/></interface>
    <controller type='scsi'/>
    <channel><target name='org.qemu.guest_agent.0' state='connected'/></channel>
  </devices>
</domain>`

func TestDescribe(t *testing.T) {
	got, err := describe(libvirt.DOMAIN_PAUSED, int(libvirt.DOMAIN_PAUSED_IOERROR), domainXML)
	if err != nil {
		t.Fatal(err)
	}
	want := hypervisor.Domain{
		Run: hypervisor.Paused, Reason: "ioerror", Emulated: true, Machine: "pc-q35-10.0",
		// libvirt counts the whole device for memory that is plugged in: 1 GiB at boot, 512 MiB plugged.
		MemoryAtBoot: 1 << 30, Memory: 1<<30 + 512<<20,
		Plugged: &hypervisor.PluggedMemory{Size: 2 << 30, Requested: 1 << 30, Current: 512 << 20},
		VCPUs:   2, MaxVCPUs: 4, AgentConnected: true,
		Threads: []uint{7}, DiskThreads: map[string]uint{"ua-root": 7},
		Disks: map[string]string{"ua-root": "vda", "ua-tray": "sda"}, Empty: map[string]bool{"ua-tray": true},
		Links: map[string]string{"ua-default": "up", "ua-second": "down"}, SCSI: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	for state, run := range map[libvirt.DomainState]hypervisor.Run{
		libvirt.DOMAIN_RUNNING: hypervisor.Running, libvirt.DOMAIN_SHUTDOWN: hypervisor.Stopping,
		libvirt.DOMAIN_SHUTOFF: hypervisor.Stopping, libvirt.DOMAIN_CRASHED: hypervisor.Paused,
		libvirt.DOMAIN_PMSUSPENDED: hypervisor.Paused,
	} {
		if got, err := describe(state, 0, domainXML); err != nil || got.Run != run {
			t.Errorf("state %d: %v, %v, want %v", state, got.Run, err, run)
		}
	}
	if _, err := describe(libvirt.DOMAIN_RUNNING, 0, "<domain"); err == nil {
		t.Error("half a domain is described")
	}
}

// A tap receives what the guest sends, and what is not known is not zero.
func TestStats(t *testing.T) {
	got := stats(&libvirt.DomainStats{
		Vcpu: []libvirt.DomainStatsVcpu{{State: 1, Time: 5, WaitSet: true, Wait: 3}},
		Balloon: &libvirt.DomainStatsBalloon{
			Current: 1024, Rss: 512, AvailableSet: true, Available: 900, UsableSet: true, Usable: 400,
		},
		Net: []libvirt.DomainStatsNet{{Name: "tap0", RxBytes: 10, TxBytes: 20}},
	})
	if v := got.VCPUs[0]; v.Wait == nil || *v.Wait != 3 || v.Delay != nil {
		t.Errorf("vCPU %+v", v)
	}
	if nic := got.Interfaces[0]; nic.Received.Bytes != 10 || nic.Sent.Bytes != 20 {
		t.Errorf("interface %+v", nic)
	}
	if got.MemoryGuest != 1<<20 || got.MemoryResident != 512<<10 || got.MemoryUsed != 500<<10 ||
		got.Memory.Unused != nil {
		t.Errorf("memory %+v", got)
	}
}
