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

// notSCSI is QEMU's message about a device that takes no SCSI commands.
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
	e := &LockedError{}
	if m := lockImage.FindStringSubmatch(message); m != nil {
		e.Path = m[1]
	}
	return e
}

// qemuTime is the time that QEMU puts before its messages.
var qemuTime = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z `)

// Message returns a message of libvirt or QEMU without the times in it: the same failure a moment later is the same
// message.
func Message(message string) string { return qemuTime.ReplaceAllString(message, "") }

// EndInLog finds in a domain's QEMU log, as libvirt writes it, how the domain's last run ended, and QEMU's last
// message. ok is false when the log does not say.
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

// maxSaid bounds what SaidLast gives, bytes.
const maxSaid = 300

// qemuName is QEMU's own name, which it puts before its messages.
var qemuName = regexp.MustCompile(`^\S*qemu-system-\S+: `)

// notSaid matches libvirt's own lines, an argument of QEMU's, and QEMU's line about a pty at every start.
var notSaid = regexp.MustCompile(`: shutting down, reason=|^-|^char device redirected to `)

// SaidLast returns the last line that QEMU itself wrote in a domain's last run, of the QEMU log as libvirt writes it;
// empty when it wrote none. A log without the run's beginning is all of that run.
func SaidLast(log string) string {
	lines := strings.Split(log, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if !strings.Contains(lines[i], ": starting up libvirt version") {
			continue
		}
		// Its environment and arguments follow, a line each, continued by a backslash.
		for i++; i < len(lines) && strings.HasSuffix(lines[i], `\`); i++ {
		}
		lines = lines[min(i+1, len(lines)):]
		break
	}
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		if line == "" || notSaid.MatchString(line) {
			continue
		}
		line = qemuName.ReplaceAllString(Message(line), "")
		return strings.ToValidUTF8(line[:min(len(line), maxSaid)], "")
	}
	return ""
}

// Unplugging reports a message which says that a device is on its way out already.
func Unplugging(message string) bool {
	return strings.Contains(message, "already in the process of unplug")
}

// NoFreePort reports a message that the guest has no PCI slot left for another device.
func NoFreePort(message string) bool {
	return strings.Contains(message, "No more available PCI slots")
}
