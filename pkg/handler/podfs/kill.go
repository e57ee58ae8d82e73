package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
)

// Launchers returns the pods below the kubelet's pod directory in which a launcher has made its socket, whether it
// still runs or not. Those that could not be looked at are an error beside those that could.
func Launchers(podsDir string) ([]types.UID, error) {
	entries, err := os.ReadDir(podsDir)
	if err != nil {
		return nil, fmt.Errorf("list the node's pods: %w", err)
	}
	var out []types.UID
	var errs []error
	for _, entry := range entries {
		pod := types.UID(entry.Name())
		switch _, err := os.Lstat(filepath.Join(RunPath(podsDir, pod), names.SocketLauncher)); {
		case err == nil:
			out = append(out, pod)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		default:
			errs = append(errs, fmt.Errorf("look for the launcher of pod %s: %w", pod, err))
		}
	}
	return out, errors.Join(errs...)
}

// killPasses bounds how often Kill looks for processes that came about while it killed others.
const killPasses = 5

// Kill ends every process in a pod's cgroups with SIGKILL, and returns how many there were. It does not wait for their
// end. proc is procfs of the host's PID namespace, in which the caller must be.
func Kill(proc string, pod types.UID) (int, error) {
	killed := map[int]bool{}
	for range killPasses {
		before := len(killed)
		if err := killOnce(proc, pod, killed); err != nil {
			return len(killed), err
		}
		if len(killed) == before {
			break
		}
	}
	return len(killed), nil
}

func killOnce(proc string, pod types.UID, killed map[int]bool) error {
	pids, err := processes(proc)
	if err != nil {
		return err
	}
	var wrong error
	for _, pid := range pids {
		if killed[pid] {
			continue // dying
		}
		switch err := killIn(proc, pid, pod); {
		case err == nil:
			killed[pid] = true
		case errors.Is(err, errOther), errors.Is(err, unix.ESRCH), errors.Is(err, fs.ErrNotExist):
		default:
			wrong = errors.Join(wrong, err)
		}
	}
	return wrong
}

// errOther reports a process that is not the pod's.
var errOther = errors.New("not in the pod")

// killIn kills a process if it is the pod's. The handle on it is taken before it is looked at: should its number
// pass to another one meanwhile, nobody is hit.
func killIn(proc string, pid int, pod types.UID) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(handle)
	p, err := openProcess(proc, pid)
	if err != nil {
		return err
	}
	defer p.Close()
	cgroup, err := p.read("cgroup", 64<<10)
	if err != nil {
		return fmt.Errorf("read the cgroup of process %d: %w", pid, err)
	}
	if !inPod(cgroup, pod) || !p.Alive() {
		return errOther
	}
	if err := unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}

// Running reports whether a process runs in a pod's cgroups. proc is procfs of the host's PID namespace, in which the
// caller must be. A process that cannot be looked at is an error: it may be the pod's.
func Running(proc string, pod types.UID) (bool, error) {
	pids, err := processes(proc)
	if err != nil {
		return false, err
	}
	for _, pid := range pids {
		switch runs, err := runsIn(proc, pid, pod); {
		case runs:
			return true, nil
		case err == nil, errors.Is(err, unix.ESRCH), errors.Is(err, fs.ErrNotExist):
		default:
			return false, fmt.Errorf("look at process %d: %w", pid, err)
		}
	}
	return false, nil
}

func runsIn(proc string, pid int, pod types.UID) (bool, error) {
	p, err := openProcess(proc, pid)
	if err != nil {
		return false, err
	}
	defer p.Close()
	cgroup, err := p.read("cgroup", 64<<10)
	return err == nil && inPod(cgroup, pod) && p.Alive(), err
}
