package podfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// AllowLocked lets each process of the container, and each that it starts from now on, lock that many bytes of memory.
// None is allowed less than before. proc is the mount point of procfs in the host's PID namespace.
func (p *Process) AllowLocked(proc string, bytes uint64) error {
	// The launcher first: whom it starts afterwards has its limit, and whom it started before is in the list.
	if err := allowLocked(p.PID, bytes); err != nil {
		return err
	}
	pids, err := p.processes(proc)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := allowLocked(pid, bytes); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

func allowLocked(pid int, bytes uint64) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &limit); err != nil {
		return fmt.Errorf("read how much memory process %d may lock: %w", pid, err)
	}
	limit.Cur, limit.Max = max(limit.Cur, bytes), max(limit.Max, bytes)
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &limit, nil); err != nil {
		return fmt.Errorf("let process %d lock memory: %w", pid, err)
	}
	return nil
}
