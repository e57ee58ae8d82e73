// Package hypervisor defines what a launcher needs from a hypervisor: to create one domain, to control it, and to learn
// what becomes of it. pkg/launcher/hypervisor/libvirt implements it with libvirt and is the only package that needs
// cgo; tests implement it in memory.
package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Connection is a connection to the daemon that runs the domain. It may be used by several goroutines.
type Connection interface {
	// Create starts the domain that xml describes; it is gone when it ends (transient). Errors:
	// ErrInvalid, *LockedError.
	Create(ctx context.Context, xml string, paused bool) error
	// Domain describes the domain; ErrNoDomain when there is none.
	Domain(ctx context.Context) (Domain, error)
	// PowerButton presses the ACPI power button, Reboot asks for a reboot (by the guest agent if it
	// answers, else ACPI), Reset is the reset button, Destroy pulls the plug. Suspend and Resume
	// stop and start the vCPUs. All return ErrNoDomain when there is none.
	PowerButton(ctx context.Context) error
	Reboot(ctx context.Context) error
	Reset(ctx context.Context) error
	Destroy(ctx context.Context) error
	Suspend(ctx context.Context) error
	Resume(ctx context.Context) error
	// Attach plugs a device that xml describes into the running domain. Errors as Create's.
	Attach(ctx context.Context, xml string) error
	// Detach asks the guest to release the device with the alias. It is gone when Domain does not list it any more,
	// which an event reports.
	Detach(ctx context.Context, alias string) error
	// SetMedium puts the image of the disk that xml describes into the CD-ROM drive with the alias; an empty xml takes
	// out what is there. A guest that holds the drive's door, since the disc is mounted, makes it fail after 5 s.
	SetMedium(ctx context.Context, alias, xml string) error
	// AddThread makes an I/O thread of that number for disks that are plugged in, RemoveThread ends one that no disk
	// uses.
	AddThread(ctx context.Context, id uint) error
	RemoveThread(ctx context.Context, id uint) error
	// DiskSize returns the size, bytes, that the disk of that name (vda, sdb, …) has for the guest.
	DiskSize(ctx context.Context, target string) (int64, error)
	// GrowDisk gives the disk of that name so many bytes, and tells the guest, also when it has that size already. The
	// image is a file, which grows along, or a device of exactly this size.
	GrowDisk(ctx context.Context, target string, bytes int64) error
	// LimitDisk gives the disk of that name (vda, sdb, …) these rate limits, in the place of all that it has.
	LimitDisk(ctx context.Context, target string, limits DiskLimits) error
	// SetLink plugs the cable of the interface with the alias in, or pulls it.
	SetLink(ctx context.Context, alias string, up bool) error
	// Dump writes the domain's memory to a file, as an ELF core; the domain stands still meanwhile. It returns when it
	// is done and does not end with ctx. ErrNoDomain when there is none.
	Dump(ctx context.Context, path string) error
	// SaveMemory writes the memory of the domain, which must be paused and stays so, and the state of its devices to a
	// file, from which Restore has it go on. It returns when it is done and does not end with ctx, but by
	// AbortMigration. ErrNoDomain when there is none.
	SaveMemory(ctx context.Context, path string) error
	// Restore starts, paused, the domain whose memory is in a file of SaveMemory's: the same domain, with disks that
	// are as they were then. Errors as Create's.
	Restore(ctx context.Context, path string) error
	// RequestMemory sets how much of the memory that may be plugged in the guest is to have, bytes. The device for it
	// exists.
	RequestMemory(ctx context.Context, bytes int64) error
	// SetVCPUs brings so many vCPUs of the running domain online.
	SetVCPUs(ctx context.Context, n uint) error
	// PinVCPU and PinEmulator say on which of the host's CPUs a vCPU and QEMU's own threads run.
	PinVCPU(ctx context.Context, vcpu uint, cpus []int) error
	PinEmulator(ctx context.Context, cpus []int) error
	// Stats returns what the domain has used; ErrNoDomain when there is none.
	Stats(ctx context.Context) (Stats, error)
	// Screenshot writes a PNG of the guest's first screen; ErrNoScreen when it has none.
	Screenshot(ctx context.Context, w io.Writer) error
	// Agent sends one command (JSON) to the guest agent and gives its reply. The agent has until ctx's
	// deadline, in whole seconds, or else 5 s. Errors: ErrNoAgent, ErrPaused, *AgentError,
	// ErrTooLarge.
	Agent(ctx context.Context, command string) (string, error)
	// Migrate moves the domain to another daemon and returns when it is there (the event End says so, too, with
	// Outcome Moved) or the migration has failed; it does not end with ctx, but by AbortMigration.
	Migrate(ctx context.Context, m Migration) (Migrated, error)
	// MigrationProgress reports the migration under way; ErrNoMigration when there is none.
	MigrationProgress(ctx context.Context) (Progress, error)
	// SetMaxDowntime changes Migration.MaxDowntime of the migration under way: QEMU stops the domain once it expects to
	// copy the rest in this time. With more time it is stopped earlier, and stands still longer.
	SetMaxDowntime(ctx context.Context, limit time.Duration) error
	// StartPostCopy lets the domain run on the target before all of its memory is there. It needs Migration.PostCopy,
	// and there is no way back.
	StartPostCopy(ctx context.Context) error
	// AbortMigration makes a migration, or a SaveMemory, that is under way fail; the domain stays.
	AbortMigration(ctx context.Context) error
	// Events delivers events, in order. It is closed when the connection is lost or closed.
	Events() <-chan Event
	Close() error
}

// DiskLimits are the rate limits of a disk, requests and bytes a second; 0 is no limit. Those of reads and writes
// together exclude those of each.
type DiskLimits struct{ IOPS, ReadIOPS, WriteIOPS, BPS, ReadBPS, WriteBPS uint64 }

// ErrNoMigration says that no migration is under way.
var ErrNoMigration = errors.New("no migration is under way")

// Connect opens a connection to the daemon listening at a unix socket.
type Connect func(ctx context.Context, socket string) (Connection, error)

// Run says whether the domain's vCPUs run.
type Run int

// What a domain does while it exists.
const (
	Running Run = iota
	Paused
	// Stopping is a guest that has shut down while QEMU still cleans up.
	Stopping
)

// Domain is a snapshot of a domain that exists.
type Domain struct {
	Run Run
	// Reason is libvirt's reason for that: booted, user, ioerror, …
	Reason string
	// Emulated says that there is no hardware virtualisation (type qemu).
	Emulated bool
	// Machine is the canonical machine type, for instance pc-q35-10.0.
	Machine string
	// MemoryAtBoot and Memory are the guest's memory then and now, bytes.
	MemoryAtBoot, Memory int64
	// Plugged is the device through which memory is added and removed, nil when there is none yet.
	Plugged *PluggedMemory
	// VCPUs are online, of MaxVCPUs.
	VCPUs, MaxVCPUs uint
	// AgentConnected says that the guest agent has opened its channel.
	AgentConnected bool
	// Disks are the names (vda, sdb, …) of the disks that have an alias of ours, by the alias.
	Disks map[string]string
	// Empty are the aliases among Disks of CD-ROM drives without a medium.
	Empty map[string]bool
	// Threads are the numbers of the I/O threads that have been given one, DiskThreads which of Disks is alone on
	// which, by alias.
	Threads     []uint
	DiskThreads map[string]uint
	// Links are the interfaces that have an alias of ours, by the alias: "up" or "down".
	Links map[string]string
	// SCSI says that there is a controller for scsi disks.
	SCSI bool
}

// PluggedMemory is memory beyond that at boot, bytes: what there may be, is to be, and is.
type PluggedMemory struct{ Size, Requested, Current int64 }

// Stats are counters since the domain started, here. Memory is in bytes, times are in nanoseconds.
type Stats struct {
	// CPUTime is the CPU time that QEMU has used; CPUUser and CPUSystem are parts of it.
	CPUTime, CPUUser, CPUSystem uint64
	// VCPUs are the vCPUs of the domain, in order.
	VCPUs []VCPUStats
	// Version is the hypervisor and its version: QEMU 10.0.3.
	Version string
	// MemoryUsed is 0 when the guest's balloon driver does not say.
	MemoryGuest, MemoryUsed, MemoryResident uint64
	// Memory is the report of the balloon's driver in the guest.
	Memory     GuestMemory
	Interfaces []InterfaceStats
	Disks      []DiskStats
}

// Online returns how many vCPUs the guest has now; the others are room for more.
func (s *Stats) Online() int {
	n := 0
	for _, v := range s.VCPUs {
		if v.State != 0 {
			n++
		}
	}
	return n
}

// VCPUStats are the statistics of one vCPU. State is libvirt's: 0 offline, 1 running, 2 blocked. Wait and Delay are nil
// when the kernel does not report them.
type VCPUStats struct {
	State       uint32
	Time        uint64
	Wait, Delay *uint64
}

// GuestMemory is in bytes, but for faults; nil is a value that the guest does not report. Maximum is the most that the
// domain may have.
type GuestMemory struct {
	Available, Usable, Unused, Cached, SwapIn, SwapOut, MajorFaults, MinorFaults, Maximum *uint64
}

// InterfaceStats are seen from the guest. Name is the tap's.
type InterfaceStats struct {
	Name           string
	Received, Sent TrafficStats
}

// TrafficStats count one direction.
type TrafficStats struct{ Bytes, Packets, Errors, Dropped uint64 }

// DiskStats are by kind of request. Name is the target's.
type DiskStats struct {
	Name               string
	Read, Write, Flush RequestStats
}

// RequestStats count requests, their bytes, and the nanoseconds that they took.
type RequestStats struct{ Requests, Bytes, Time uint64 }

// Event is one thing that happened to the domain.
type Event struct {
	// End is set when the domain is gone; otherwise something changed, and Domain returns the new state.
	End *End
	// Started says that the domain has been created here. Ends that are reported before it are of domains before this
	// one, also of those that could not be created.
	Started bool
	// StoppedToMove says that the domain has just been stopped, for what is left of it to be copied by its migration.
	StoppedToMove bool
}

// End says how a domain ended.
type End struct {
	Outcome Outcome
	// Reason is libvirt's reason: shutdown, destroyed, crashed, failed, migrated; or ReasonPanicked or ReasonLost.
	Reason string
}

// Why a guest has crashed.
const (
	// ReasonPanicked: the guest wrote so to its panic device.
	ReasonPanicked = "panicked"
	// ReasonFailed and ReasonCrashed: QEMU ended of itself, or was killed; libvirt's words, in its event and its log.
	ReasonFailed  = "failed"
	ReasonCrashed = "crashed"
	// ReasonLost: QEMU was gone when libvirtd came back, and nothing says how it ended.
	ReasonLost = "lost"
)

// Outcome says how a domain ended.
type Outcome int

// The outcomes.
const (
	// Shutdown: the guest powered off.
	Shutdown Outcome = iota
	// Destroyed: it was powered off by force.
	Destroyed
	// Crashed: QEMU died or the guest panicked.
	Crashed
	// Moved: it goes on in another daemon.
	Moved
)

// ErrNoDomain means that there is no domain: never created, or gone.
var ErrNoDomain = errors.New("the domain does not exist")

// ErrNoScreen means that the domain has no graphics.
var ErrNoScreen = errors.New("the domain has no screen")

// ErrInvalid means that the domain's description cannot ever be run here.
var ErrInvalid = errors.New("invalid domain")

// ErrNoAgent means that no guest agent answers: there is none, or it or its guest is busy.
var ErrNoAgent = errors.New("the guest agent does not answer")

// ErrPaused is an ErrNoAgent of a guest that is paused, by a user or at the end of a migration from here.
var ErrPaused = fmt.Errorf("%w: the guest is paused", ErrNoAgent)

// MaxAgentCommand is the largest command that libvirt gets through to an agent, bytes. It would carry 4 MiB, but begins
// anew where the agent's channel, a unix socket, is full in the middle of one (qemuAgentIOWrite loses count of what
// safewrite has written before EAGAIN), so all of a command must fit the socket's buffer.
const MaxAgentCommand = 128 << 10

// ErrTooLarge means that a command for the agent, or its reply, is larger than the daemon carries: MaxAgentCommand and
// 4 MiB.
var ErrTooLarge = errors.New("more than the guest agent's channel carries")

// AgentError is the agent's refusal of a command, in its own words.
type AgentError struct{ Message string }

func (e *AgentError) Error() string { return e.Message }

// LockedError means that another process, perhaps another guest, uses a disk image.
type LockedError struct {
	// Path is the image; empty where QEMU does not name it, as of a disk that is plugged in.
	Path string
}

func (e *LockedError) Error() string {
	if e.Path == "" {
		return "the image of a disk is in use by another process"
	}
	return fmt.Sprintf("the image %s is in use by another process", e.Path)
}
