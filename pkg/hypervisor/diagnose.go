package hypervisor

import (
	"fmt"
	"regexp"
	"strings"
)

// QEMU's message when it cannot lock an image (block/file-posix.c): `Failed to get "write" lock`,
// `Failed to get shared "write" lock`, then a line `Is another process using the image [PATH]?`.
var (
	lockFailed = regexp.MustCompile(`Failed to get (?:shared )?"[a-z -]+" lock`)
	lockImage  = regexp.MustCompile(`Is another process using the image \[([^\]]*)\]\?`)
)

// notSCSI is what QEMU says of a device that takes no SCSI commands.
const notSCSI = "cannot get SG_IO version number"

// Diagnose turns a message of libvirt or QEMU into a *LockedError when it is one, into ErrInvalid when it says that the
// devices that there are do not do, else nil.
func Diagnose(message string) error {
	if strings.Contains(message, notSCSI) {
		return fmt.Errorf("%w: the volume of a disk with lun is no SCSI device; use disk: {bus: scsi} "+
			"for it", ErrInvalid)
	}
	if !lockFailed.MatchString(message) {
		return nil
	}
	e := &LockedError{Path: "of a disk"}
	if m := lockImage.FindStringSubmatch(message); m != nil {
		e.Path = m[1]
	}
	return e
}

// qemuTime is the time that QEMU puts before its messages.
var qemuTime = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z `)

// Message is a message of libvirt or QEMU without the times in it: the same failure a moment later is
// the same message.
func Message(message string) string { return qemuTime.ReplaceAllString(message, "") }

// EndInLog finds in a domain's QEMU log, as libvirt writes it, how the domain's last run ended, and
// what QEMU said last. ok is false when the log does not tell.
func EndInLog(log string) (end End, ok bool) {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		line := lines[i]
		if strings.Contains(line, ": starting up libvirt version") {
			break
		}
		_, reason, found := strings.Cut(line, "shutting down, reason=")
		if !found {
			continue
		}
		reason = strings.TrimSpace(reason)
		switch reason {
		case "shutdown":
			return End{Outcome: Shutdown, Reason: reason}, true
		case "destroyed":
			return End{Outcome: Destroyed, Reason: reason}, true
		case "migrated":
			return End{Outcome: Moved, Reason: reason}, true
		case "crashed", "failed":
			return End{Outcome: Crashed, Reason: reason}, true
		}
		return End{}, false
	}
	return End{}, false
}

// Unplugging reports a message which says that a device is on its way out already.
func Unplugging(message string) bool {
	return strings.Contains(message, "already in the process of unplug")
}

// NoFreePort reports a message which says that the machine has no slot left for another device.
func NoFreePort(message string) bool {
	return strings.Contains(message, "No more available PCI slots")
}
