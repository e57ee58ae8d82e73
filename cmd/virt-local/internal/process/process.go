// Package process starts, finds and ends the long-lived processes of an instance. They outlive the
// command that started them and are found again by a pid file, which names the process by pid, start
// time and boot so that a recycled pid is never mistaken for ours, and, when the pid file was lost in
// a crash, by their command line, which carries the instance's state directory.
package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ID is a process for good: no other, earlier or later, has the same.
type ID struct {
	PID int `json:"pid"`
	// Start is when it began, in clock ticks since boot (field 22 of /proc/PID/stat).
	Start uint64 `json:"start"`
	// Boot is the kernel's boot id.
	Boot string `json:"boot"`
}

// Stat is what /proc/PID/stat says of a process.
type Stat struct {
	Parent int
	State  byte
	// Start is in clock ticks since boot.
	Start uint64
}

// parseStat reads the line of /proc/PID/stat; the second field, the command, may contain anything.
func parseStat(line string) (Stat, error) {
	end := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[end+1:])
	if end < 0 || len(fields) < 20 {
		return Stat{}, fmt.Errorf("malformed process status %q", line)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Stat{}, fmt.Errorf("malformed process status %q: %w", line, err)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("malformed process status %q: %w", line, err)
	}
	return Stat{Parent: parent, State: fields[0][0], Start: start}, nil
}

// ReadStat reads /proc/PID/stat.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, fmt.Errorf("read status of process %d: %w", pid, err)
	}
	return parseStat(string(b))
}

// Identify returns the ID of the running process pid.
func Identify(pid int) (ID, error) {
	st, err := ReadStat(pid)
	if err != nil {
		return ID{}, err
	}
	boot, err := bootID()
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, Start: st.Start, Boot: boot}, nil
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Alive reports whether the process still runs. A zombie does not.
func (id ID) Alive() bool {
	state := id.state()
	return state != 0 && state != 'Z' && state != 'X'
}

// state returns the state in /proc/PID/stat, 0 of a process that is gone. It is the first thread's: that is a zombie
// while others still have the process's files and ports.
func (id ID) state() byte {
	if id.PID <= 0 {
		return 0
	}
	boot, err := bootID()
	if err != nil || boot != id.Boot {
		return 0
	}
	st, err := ReadStat(id.PID)
	if err != nil || st.Start != id.Start {
		return 0
	}
	return st.State
}

// End asks the process to end with SIGTERM, kills it after grace, and returns when it is gone. Without
// grace it kills at once. It is gone when its last thread is, and all that it had is free. The process is held by a
// pidfd meanwhile, so nobody else can be hit.
func (id ID) End(ctx context.Context, grace time.Duration) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) || id.state() == 0 {
		if err == nil {
			unix.Close(fd)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("end process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	if grace > 0 {
		if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d: %w", id.PID, err)
		}
		if gone, err := waitPidfd(ctx, fd, grace); err != nil || gone {
			return err
		}
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", id.PID, err)
	}
	gone, err := waitPidfd(ctx, fd, 30*time.Second)
	if err == nil && !gone {
		err = fmt.Errorf("process %d does not end after SIGKILL", id.PID)
	}
	return err
}

// waitPidfd waits until the process has ended, the time is up (false) or ctx is done.
func waitPidfd(ctx context.Context, fd int, timeout time.Duration) (bool, error) {
	deadline := time.Now().Add(timeout)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("wait for process: %w", err)
		case n > 0:
			return true, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case time.Now().After(deadline):
			return false, nil
		}
	}
}

// WriteFile records the process in a pid file.
func (id ID) WriteFile(path string) error {
	b, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	return nil
}

// ReadFile reads a pid file. A missing or torn one gives the zero ID, which is never alive.
func ReadFile(path string) (ID, error) {
	var id ID
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return id, nil
	}
	if err != nil {
		return id, fmt.Errorf("read pid file: %w", err)
	}
	if json.Unmarshal(b, &id) == nil {
		return id, nil
	}
	return ID{}, nil // half written by a process that was killed
}

// Find returns the processes whose command line, after the program's own name, begins with args.
func Find(args ...string) ([]ID, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	want := append([]byte(strings.Join(args, "\x00")), 0)
	var found []ID
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			continue // it ended while we looked
		}
		if _, rest, ok := bytes.Cut(cmdline, []byte{0}); !ok || !bytes.HasPrefix(rest, want) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if id, err := Identify(pid); err == nil && id.Alive() {
			found = append(found, id)
		}
	}
	return found, nil
}

// Children returns the live child processes of a process with their arguments.
func Children(parent int) (map[int][]string, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]string{}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		st, err := ReadStat(pid)
		if err != nil || st.Parent != parent || st.State == 'Z' {
			continue
		}
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			continue
		}
		children[pid] = strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	}
	return children, nil
}

// clockTicks is USER_HZ, 100 on every Linux architecture Go runs on.
const clockTicks = 100

// Usage is the CPU time and memory that a process has used.
type Usage struct {
	// RSS is its resident memory in bytes.
	RSS int64
	// Age is since when it runs.
	Age time.Duration
}

// ReadUsage reads a process's memory and age.
func ReadUsage(pid int) (Usage, error) {
	st, err := ReadStat(pid)
	if err != nil {
		return Usage{}, err
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return Usage{}, fmt.Errorf("read the time since boot: %w", err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	var size, rss int64
	if _, err := fmt.Sscan(string(b), &size, &rss); err != nil {
		return Usage{}, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	age := time.Duration(up.Nano()) - time.Duration(st.Start)*(time.Second/clockTicks)
	return Usage{RSS: rss * int64(os.Getpagesize()), Age: age}, nil
}
