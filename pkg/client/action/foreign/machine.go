package foreign

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// Machine is a VM as another hypervisor has it.
type Machine struct {
	// Name is its name there.
	Name string
	// CPU is its processor; Memory is bytes.
	CPU    CPU
	Memory int64
	// EFI says that its firmware is EFI rather than a BIOS.
	EFI, SecureBoot bool
	// UUID is its firmware's.
	UUID string
	// Sound is the model of its sound card, Watchdog what its watchdog does; empty for none.
	Sound, Watchdog string
	RNG, TPM        bool
	Tablet          bool
	// Timezone is the zone of its clock; empty for UTC.
	Timezone string
	Disks    []Disk
	NICs     []NIC
	// Absent says what it has that has no counterpart here.
	Absent []string

	// order is in which order kinds of devices are booted from, in libvirt's words.
	order []string
}

// CPU is a processor; 0 and empty are not known.
type CPU struct {
	Sockets, Cores, Threads uint32
	Model                   string
}

// Disk is a disk or a CD drive.
type Disk struct {
	// Label is what the file calls it.
	Label string
	Bus   v1.DiskBus
	// Was is the controller that it had, where Bus is another.
	Was   string
	CDROM bool
	// File has it; empty is an empty drive, or a blank disk of Capacity bytes.
	File     string
	Format   imageformat.Format
	Capacity int64
	Serial   string
	// Boot is its place in the order in which devices are booted from; 0 for none.
	Boot uint

	volume string
}

// NIC is a network interface.
type NIC struct {
	// Network is what the file calls the network that it is in.
	Network string
	MAC     string
	Model   string
	// Was is the model that it had, where Model is another.
	Was  string
	Boot uint
}

// absent notes what has no counterpart.
func (m *Machine) absent(format string, args ...any) {
	m.Absent = append(m.Absent, fmt.Sprintf(format, args...))
}

// name gives each disk its volume's name.
func (m *Machine) name() {
	disks, drives := 0, 0
	for i := range m.Disks {
		disk := &m.Disks[i]
		if disk.CDROM {
			drives++
			disk.volume = fmt.Sprintf("cd%d", drives)
			continue
		}
		disks++
		disk.volume = fmt.Sprintf("disk%d", disks)
	}
}

// withClaims returns the disks that get a claim.
func (m *Machine) withClaims() []*Disk {
	var out []*Disk
	for i := range m.Disks {
		if disk := &m.Disks[i]; disk.File != "" || !disk.CDROM {
			out = append(out, disk)
		}
	}
	return out
}

// check refuses hardware that no machine has.
func (m *Machine) check() error {
	const most = 1 << 12
	all := uint64(max(m.CPU.Sockets, 1)) * uint64(max(m.CPU.Cores, 1))
	switch {
	case m.CPU.Sockets > most || m.CPU.Cores > most || m.CPU.Threads > most ||
		all*uint64(max(m.CPU.Threads, 1)) > most:
		return fmt.Errorf("%d sockets of %d cores of %d threads are more than a VM has", m.CPU.Sockets, m.CPU.Cores,
			m.CPU.Threads)
	case m.Memory < 0 || m.Memory > 1<<50:
		return fmt.Errorf("%d bytes of memory are no size of a VM", m.Memory)
	case len(m.Disks) > maxDisks:
		return fmt.Errorf("%d disks are more than the %d that a VM may have", len(m.Disks), maxDisks)
	case len(m.NICs) > maxDisks:
		return fmt.Errorf("%d network interfaces are more than the %d that a VM may have", len(m.NICs), maxDisks)
	}
	for i := range m.Disks {
		if c := m.Disks[i].Capacity; c < 0 || c > 1<<50 {
			return fmt.Errorf("%s: %d bytes are no size of a disk", m.Disks[i].Label, c)
		}
	}
	return nil
}

const maxDisks = 256

// macOf returns a MAC address as a VM has it; empty for one that is none, or that is a group's.
func macOf(text string) string {
	if len(text) == 12 {
		var parts []string
		for i := 0; i < len(text); i += 2 {
			parts = append(parts, text[i:i+2])
		}
		text = strings.Join(parts, ":")
	}
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" {
		return ""
	}
	return mac.String()
}

// number reads a number that is not negative; 0 for what is none.
func number(text string) uint32 {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// times multiplies a number that a file has by its unit, bytes. An overflow is the largest number, which is refused.
func times(text string, unit int64) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	switch {
	case err != nil || n < 0 || unit <= 0:
		return 0, false
	case n > math.MaxInt64/unit:
		return math.MaxInt64, true
	}
	return n * unit, true
}
