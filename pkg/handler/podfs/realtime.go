package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// realtimePriority is the priority of a vCPU, the least above all others; KubeVirt's.
const realtimePriority = 1

// vcpuThread matches QEMU's name for the thread of a vCPU.
var vcpuThread = regexp.MustCompile(`^CPU ([0-9]{1,5})/(KVM|TCG)$`)

// Realtime gives real-time priority to those vCPUs of the guest in the process's container whose numbers are true in
// real, and reports whether it has found each. Threads that have it stay as they are. proc is the mount point of procfs
// in the host's PID namespace.
func (p *Process) Realtime(proc string, real []bool) (all bool, err error) {
	pids, err := p.processes(proc)
	if err != nil {
		return false, err
	}
	found := make([]bool, len(real))
	for _, pid := range pids {
		if err := realtimeThreads(filepath.Join(proc, strconv.Itoa(pid), "task"), real, found); err != nil {
			return false, err
		}
	}
	for i := range real {
		if real[i] && !found[i] {
			return false, nil
		}
	}
	return true, nil
}

// realtimeThreads looks at the threads of one process, in its directory of procfs.
func realtimeThreads(tasks string, real, found []bool) error {
	threads, err := os.ReadDir(tasks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended
	}
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		name, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "comm"))
		if err != nil {
			continue // it has ended
		}
		match := vcpuThread.FindSubmatch([]byte(strings.TrimSuffix(string(name), "\n")))
		if match == nil {
			continue
		}
		vcpu, err := strconv.Atoi(string(match[1]))
		// Who runs in the pod may call threads as they like: no more than one a vCPU.
		if err != nil || vcpu >= len(real) || !real[vcpu] || found[vcpu] {
			continue
		}
		if err := prioritize(tid); errors.Is(err, unix.ESRCH) {
			continue
		} else if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("give vCPU %d real-time priority: %w: the kernel of the node has CONFIG_RT_GROUP_SCHED "+
				"and leaves none to the pod's control group (cpu.rt_runtime_us)", vcpu, err)
		} else if err != nil {
			return fmt.Errorf("give vCPU %d real-time priority: %w", vcpu, err)
		}
		found[vcpu] = true
	}
	return nil
}

func prioritize(tid int) error {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil || attr.Policy == unix.SCHED_FIFO && attr.Priority == realtimePriority {
		return err
	}
	return unix.SchedSetAttr(tid,
		&unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: realtimePriority}, 0)
}
