package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"libvirt.org/go/libvirtxml"
)

// Migration is the destination of a domain. All three are unix sockets; those for memory and disks have the same paths
// on both sides, where the other daemon's QEMU listens.
type Migration struct {
	// Peer leads to the other daemon, Memory and Disks to the QEMU that it starts.
	Peer, Memory, Disks string
	// CopyBelow is a directory: images in it that the guest can write are copied. All others must be the
	// same on both sides.
	CopyBelow string
	// Moved are disks that are copied, too, to other images, which are there.
	Moved []MovedDisk
	// Held: the domain does not run at the target before it is resumed there. (Not with post-copy, where it has to run
	// before all of it is there.)
	Held bool

	// Bandwidth bounds the copying of memory and of each disk, bytes a second; 0 does not.
	Bandwidth uint64
	// AutoConverge slows the domain down when it changes memory faster than that can be copied, PostCopy
	// allows StartPostCopy, and Unsafe moves although the daemon has objections.
	AutoConverge, PostCopy, Unsafe bool
	// Connections is over how many connections memory is copied besides the first. 0 is the first alone, and
	// all that PostCopy allows.
	Connections int
	// MaxDowntime is how long the domain may stand still at the end, as QEMU estimates it; 0 is QEMU's own default,
	// 300 ms. See Connection.SetMaxDowntime.
	MaxDowntime time.Duration
}

// MovedDisk is a disk that is copied to another image.
type MovedDisk struct {
	// Alias is the disk's in the domain, Path the image at the target: a device, or a raw file.
	Alias, Path string
	Block       bool
}

// Progress is the progress of a migration: bytes, and bytes a second.
type Progress struct {
	Elapsed                                 time.Duration
	DataTotal, DataProcessed, DataRemaining uint64
	MemoryRemaining, DiskRemaining          uint64
	Bandwidth, DirtyRate, Iteration         uint64
	Throttle                                uint // percent
	// ExpectedDowntime is the time for which the domain would stand still if it moved now.
	ExpectedDowntime time.Duration
}

// BeforeMemory returns an account in which a domain's memory, bytes, is still to be copied. libvirt counts memory only
// from when it copies it, which is after the disks.
func (p Progress) BeforeMemory(memory uint64) Progress {
	p.DataTotal += memory
	p.DataRemaining += memory
	p.MemoryRemaining = memory
	return p
}

// Migrated is the result of a migration.
type Migrated struct {
	// Downtime is the time in which no vCPU ran; zero when it is not known.
	Downtime time.Duration
	// Progress is the last account; nil when there is none.
	Progress *Progress
}

// reasonMigration is libvirt's reason for a domain that is paused on the side where it does not run yet, or any more,
// while its migration is under way.
const reasonMigration = "migration"

// ReasonPostCopy is libvirt's reason for a domain that runs and does not have all of its memory yet.
const ReasonPostCopy = "post-copy"

// reasonLeft is libvirt's reason for a paused domain that was switched to post-copy: it cannot go on here any more.
const reasonLeft = "postcopy"

// Moving reports whether the domain only waits for the other side of a migration, or still needs it.
func (d Domain) Moving() bool {
	return d.Run == Running && d.Reason == ReasonPostCopy ||
		d.Run == Paused && (d.Reason == reasonMigration || d.Reason == reasonLeft || d.Reason == "starting-up")
}

// Left reports whether the domain has gone on at the target of a migration by post-copy: here it can only be ended.
func (d Domain) Left() bool { return d.Run == Paused && d.Reason == reasonLeft }

// reasonError is libvirt's reason for a domain that stands still although libvirt wanted to resume it: mostly the other
// side of a failed migration still holds the locks of its images.
const reasonError = "api-error"

// Stopped reports whether the domain stands still for a migration and could go on here.
func (d Domain) Stopped() bool {
	return d.Run == Paused && (d.Reason == reasonMigration || d.Reason == reasonError)
}

// MovedDisks reads from a domain's XML the names (vda, …) of disks that are copied to other images.
func MovedDisks(text string, moved []MovedDisk) (map[string]MovedDisk, error) {
	if len(moved) == 0 {
		return nil, nil
	}
	var domain libvirtxml.Domain
	if err := domain.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("read the domain's XML: %w", err)
	}
	out := map[string]MovedDisk{}
	for _, m := range moved {
		at := slices.IndexFunc(domain.Devices.Disks, func(d libvirtxml.DomainDisk) bool {
			return d.Alias != nil && d.Alias.Name == m.Alias && d.Target != nil
		})
		if at < 0 {
			return nil, fmt.Errorf("the domain has no disk %s", m.Alias)
		}
		out[domain.Devices.Disks[at].Target.Dev] = m
	}
	return out, nil
}

// WithImages returns a domain's XML in which disks, by name, have the images to which they are copied.
func WithImages(text string, moved map[string]MovedDisk) (string, error) {
	var domain libvirtxml.Domain
	if err := domain.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read the domain's XML: %w", err)
	}
	for i := range domain.Devices.Disks {
		d := &domain.Devices.Disks[i]
		if d.Target == nil {
			continue
		}
		to, ok := moved[d.Target.Dev]
		switch {
		case !ok:
		case to.Block:
			d.Source = &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: to.Path}}
		default:
			d.Source = &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: to.Path}}
		}
	}
	return domain.Marshal()
}

// CopiedDisks reads from a domain's XML the names (vda, …) of the disks that a migration has to copy: those
// which the guest can write and whose image is a file below dir.
func CopiedDisks(text, dir string) ([]string, error) {
	var domain struct {
		Disks []struct {
			Source struct {
				File string `xml:"file,attr"`
			} `xml:"source"`
			Target struct {
				Dev string `xml:"dev,attr"`
			} `xml:"target"`
			ReadOnly *struct{} `xml:"readonly"`
		} `xml:"devices>disk"`
	}
	if err := xml.Unmarshal([]byte(text), &domain); err != nil {
		return nil, fmt.Errorf("read the domain's XML: %w", err)
	}
	var out []string
	for _, d := range domain.Disks {
		if d.ReadOnly == nil && d.Source.File != "" && filepath.Dir(d.Source.File) == filepath.Clean(dir) {
			out = append(out, d.Target.Dev)
		}
	}
	return out, nil
}

// lostPeer are libvirt's words for a connection between two daemons that has broken.
var lostPeer = []string{
	"client socket is closed", "End of file while reading data",
	"Lost connection to destination host", "Cannot recv data", "Cannot write data",
}

// FailureReason returns for people why the migration of a domain that is still here failed.
func FailureReason(err error) string {
	if errors.Is(err, ErrNoDomain) {
		return "the guest's QEMU on the target node has ended"
	}
	message := strings.TrimPrefix(err.Error(), "internal error: ")
	for _, words := range lostPeer {
		if strings.Contains(message, words) {
			return "the connection between the libvirtd of both nodes was lost (" + message + ")"
		}
	}
	return message
}
