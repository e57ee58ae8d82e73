package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// peakMemory runs a program and returns its peak RSS in bytes, read when it is about to end. (The ru_maxrss of a child
// would not do: it counts what the parent had when it made the child, which may be more.)
func peakMemory(program string, args ...string) (int64, error) {
	runtime.LockOSThread() // only the thread that traces may ask
	defer runtime.UnlockOSThread()
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid, peak := cmd.Process.Pid, int64(0)
	for traced := false; ; traced = true {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
			return 0, fmt.Errorf("wait for %s: %w", program, err)
		}
		signal := 0
		switch {
		case status.Exited() && status.ExitStatus() == 0 && peak > 0:
			return peak, nil
		case status.Exited() || status.Signaled():
			return 0, fmt.Errorf("%s ended before it was weighed, with status %#x", program, status)
		case !traced: // stopped by its execve
			if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACEEXIT); err != nil {
				return 0, fmt.Errorf("trace %s: %w", program, err)
			}
		case status.TrapCause() == syscall.PTRACE_EVENT_EXIT:
			var err error
			if peak, err = highWater(pid); err != nil {
				return 0, err
			}
		default:
			signal = int(status.StopSignal())
		}
		if err := syscall.PtraceCont(pid, signal); err != nil {
			return 0, fmt.Errorf("trace %s: %w", program, err)
		}
	}
}

// highWater reads VmHWM of a process, in bytes.
func highWater(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}
