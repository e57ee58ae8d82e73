package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// process is a process to which signals can be sent.
type process interface {
	Signal(sig os.Signal) error
	Release() error
}

// errQEMUEnded says that the process whose number libvirt has kept is gone, whatever libvirtd knows yet.
var errQEMUEnded = errors.New("it has ended")

// findQEMU finds the domain's QEMU by the file in which libvirt keeps its PID. The PID may be another process's by now,
// so its name is looked at, too, once nobody else can get the PID. The error is errQEMUEnded when no such process is
// left, or only one that has ended and waits to be reaped.
func findQEMU(pidFile, emulator string) (process, error) {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, fmt.Errorf("find QEMU: %w", err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil || pid <= 1 {
		return nil, fmt.Errorf("find QEMU: %s holds %q", pidFile, text)
	}
	found, err := os.FindProcess(pid) // holds on to it (pidfd)
	if err != nil {
		return nil, fmt.Errorf("find QEMU: %w", err)
	}
	stat, err := processStat(pid)
	switch {
	case err != nil:
	case stat.name == "" || !strings.HasPrefix(filepath.Base(emulator), stat.name):
		err = fmt.Errorf("%w: process %d is %s", errQEMUEnded, pid, stat.name)
	case stat.dies():
		err = fmt.Errorf("%w: process %d is dead", errQEMUEnded, pid)
	}
	if err == nil {
		err = found.Signal(syscall.Signal(0)) // it lives, so the name was its own
	}
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		err = fmt.Errorf("%w: there is no process %d", errQEMUEnded, pid)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find QEMU: %w", err), found.Release())
	}
	return found, nil
}

// stat holds the kernel's report on a process.
type stat struct {
	name, state string
	// flags and pending are its first thread's: PF_…, and the signals that it has yet to take, from bit 0.
	flags, pending uint64
}

// exiting is the flag PF_EXITING: the thread never runs its program again.
const exiting = 0x4

// dies reports whether the process has ended or runs nothing of its program any more. A busy node may take long from a
// SIGKILL, which each thread of the process gets, to the end of the first thread, which is QEMU's main thread.
func (s stat) dies() bool {
	return s.state == "Z" || s.state == "X" || s.flags&exiting != 0 || s.pending&(1<<(syscall.SIGKILL-1)) != 0
}

// processStat reads /proc/pid/stat; proc_pid_stat(5).
func processStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	s, err := parseStat(string(text))
	if err != nil {
		return stat{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return s, nil
}

func parseStat(text string) (s stat, err error) {
	const flags, pending = 6, 28 // fields after the name
	// The name may have anything in it, brackets too.
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return stat{}, fmt.Errorf("it holds %q", text)
	}
	fields := strings.Fields(text[to+1:])
	if len(fields) <= pending {
		return stat{}, fmt.Errorf("it holds %q", text)
	}
	s.name, s.state = text[from+1:to], fields[0]
	if s.flags, err = strconv.ParseUint(fields[flags], 10, 64); err != nil {
		return stat{}, err
	}
	if s.pending, err = strconv.ParseUint(fields[pending], 10, 64); err != nil {
		return stat{}, err
	}
	return s, nil
}

// maxQEMULog is the most that is read from the end of QEMU's log, bytes.
const maxQEMULog = 16 << 10

// lastWords finds how a domain ended that is gone when the daemon comes back: libvirt's log says so
// if the daemon noticed; else it is a crash.
func (g *guest) lastWords() hypervisor.End {
	lost := hypervisor.End{Outcome: hypervisor.Crashed, Reason: hypervisor.ReasonLost}
	text, err := tail(g.qemuLog, maxQEMULog)
	if err != nil {
		g.log.Warn("cannot read QEMU's log", "err", err)
		return lost
	}
	if end, ok := hypervisor.EndInLog(text); ok {
		return end
	}
	return lost
}

// withSaid adds to why QEMU ended what it said last, where it ended of itself: for others libvirt's word is enough.
func (g *guest) withSaid(reason string) string {
	switch reason {
	case hypervisor.ReasonFailed, hypervisor.ReasonCrashed, hypervisor.ReasonLost:
	default:
		return reason
	}
	text, err := tail(g.qemuLog, maxQEMULog)
	if err != nil {
		g.log.Warn("cannot read QEMU's log", "err", err)
		return reason
	}
	if said := hypervisor.SaidLast(text); said != "" {
		reason += "; QEMU said last: " + said
	}
	return reason
}

// tail reads the last n bytes of a file.
func tail(path string, n int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-n), n))
	return string(b), err
}
