package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// maxMountInfo bounds what is read of a process's mounts, bytes.
const maxMountInfo = 4 << 20

// FindMounted finds a process of a pod that has something mounted at a path. proc is the mount point of procfs in the
// host's PID namespace.
func FindMounted(proc string, pod types.UID, at string) (*Process, error) {
	return findProcess(proc, pod, at+" mounted", func(p *Process) (bool, error) { return p.Mounted(at) })
}

// FindHolder finds a process in one of a pod's containers that has something mounted at a path: of a pod whose
// processes serve no socket, one in the container that has the volume. podsDir is the kubelet's pod directory.
func FindHolder(proc, podsDir string, pod types.UID, container, at string) (*Process, error) {
	return findProcess(proc, pod, at+" mounted in container "+container, func(p *Process) (bool, error) {
		if mounted, err := p.Mounted(at); err != nil || !mounted {
			return false, err
		}
		return p.inContainer(podsDir, container)
	})
}

// findProcess finds a process of a pod by what it has. One that cannot be looked at has ended meanwhile.
func findProcess(proc string, pod types.UID, what string, has func(*Process) (bool, error)) (*Process, error) {
	pids, err := processes(proc)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		p, err := openProcess(proc, pid)
		if err != nil {
			continue // ended meanwhile
		}
		p.Pod = pod
		cgroup, err := p.read("cgroup", 64<<10)
		if err == nil && inPod(cgroup, pod) {
			if ok, err := has(p); err == nil && ok {
				return p, nil
			}
		}
		p.Close()
	}
	return nil, fmt.Errorf("no process of pod %s has %s: %w", pod, what, fs.ErrNotExist)
}

// processes returns the process IDs in procfs.
func processes(proc string) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func openProcess(proc string, pid int) (*Process, error) {
	dir, err := os.OpenFile(path.Join(proc, strconv.Itoa(pid)), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Process{PID: pid, proc: dir}, nil
}

// Mounted reports whether the process sees something mounted at a path.
func (p *Process) Mounted(at string) (bool, error) {
	info, err := p.read("mountinfo", maxMountInfo)
	if err != nil {
		return false, fmt.Errorf("read the mounts of process %d: %w", p.PID, err)
	}
	return mountedAt(string(info), at), nil
}

// mountedAt reads /proc/<pid>/mountinfo.
func mountedAt(info, at string) bool {
	for line := range strings.Lines(info) {
		// ID, parent, device, root, mount point, …; see proc_pid_mountinfo(5)
		if fields := strings.Fields(line); len(fields) > 4 && unescape(fields[4]) == at {
			return true
		}
	}
	return false
}

// unescape undoes what the kernel does to white space and backslashes in paths: \ooo, octal.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if b, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(b))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// KubeletDevice returns the number of a block device that the kubelet has prepared for a pod's claims. It is
// asked of the kubelet's own directory and not of the pod, whose device nodes its processes may have made. Of several
// devices it is the one that the pod has at a path.
func KubeletDevice(podsDir, proc string, pod types.UID, at string) (uint64, error) {
	maps, err := kubeletMaps(podsDir, pod)
	if err != nil {
		return 0, err
	}
	switch len(maps) {
	case 0:
		return 0, fmt.Errorf("the kubelet has no devices for pod %s: %w", pod, fs.ErrNotExist)
	case 1:
		return mappedDevice(proc, pod, maps[0])
	}
	shown, err := deviceIn(proc, pod, at)
	if err != nil {
		return 0, err
	}
	for _, name := range maps {
		if device, err := mappedDevice(proc, pod, name); err != nil || device == shown {
			return device, err
		}
	}
	return 0, fmt.Errorf("pod %s has a device at %s that the kubelet did not put there", pod, at)
}

// deviceIn returns the number of the block device that a pod has at a path.
func deviceIn(proc string, pod types.UID, at string) (uint64, error) {
	var stat unix.Stat_t
	p, err := findProcess(proc, pod, at, func(p *Process) (bool, error) {
		var err error
		stat, err = p.Stat(at)
		return err == nil, err
	})
	if err != nil {
		return 0, err
	}
	p.Close()
	return blockOf(at, stat)
}

// mappedDevice returns the number of the device that one of the kubelet's names is for.
func mappedDevice(proc string, pod types.UID, name string) (uint64, error) {
	link, err := os.Readlink(name)
	if err != nil {
		if !errors.Is(err, unix.EINVAL) {
			return 0, fmt.Errorf("find the device of pod %s: %w", pod, err)
		}
		return blockNumber(name)
	}
	host, err := openProcess(proc, 1)
	if err != nil {
		return 0, fmt.Errorf("open the node's file system: %w", err)
	}
	defer host.Close()
	stat, err := host.Stat(link)
	if err != nil {
		return 0, fmt.Errorf("find the device of pod %s: %w", pod, err)
	}
	return blockOf(link, stat)
}

func blockNumber(name string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(name, &stat); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return blockOf(name, stat)
}

func blockOf(name string, stat unix.Stat_t) (uint64, error) {
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fmt.Errorf("%s is not a block device", name)
	}
	return stat.Rdev, nil
}
