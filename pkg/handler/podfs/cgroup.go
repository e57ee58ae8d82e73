package podfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// groupDir returns the directory of the control group by which the process may use devices, and whether it is of cgroup
// v1. proc is the mount point of procfs in the host's PID namespace.
func (p *Process) groupDir(proc string) (dir string, v1 bool, err error) {
	text, err := p.read("cgroup", 64<<10)
	if err != nil {
		return "", false, fmt.Errorf("read the pod's cgroup: %w", err)
	}
	if !inPod(text, p.Pod) {
		return "", false, fmt.Errorf("process %d is not in pod %q", p.PID, p.Pod)
	}
	group, err := deviceGroup(string(text))
	if err != nil {
		return "", false, err
	}
	// The node's own view: the one in virt-handler's container begins at that container.
	mounts := filepath.Join(proc, "1/root/sys/fs/cgroup")
	if group.v1 {
		mounts = filepath.Join(mounts, "devices")
	}
	return filepath.Join(mounts, group.path), group.v1, nil
}

// processes returns the IDs of the processes in the container.
func (p *Process) processes(proc string) ([]int, error) {
	dir, _, err := p.groupDir(proc)
	if err != nil {
		return nil, err
	}
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("list the processes of the pod: %w", err)
	}
	var out []int
	for field := range strings.FieldsSeq(string(list)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("list the processes of the pod: %w", err)
		}
		out = append(out, pid)
	}
	return out, nil
}

// group is the control group that decides which devices a process may use.
type group struct {
	v1   bool
	path string
}

// deviceGroup reads /proc/<pid>/cgroup: the hierarchy of the devices controller where there is one, else
// the unified one.
func deviceGroup(text string) (group, error) {
	found := group{}
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case slices.Contains(strings.Split(fields[1], ","), "devices"):
			found = group{v1: true, path: fields[2]}
		case fields[0] == "0" && !found.v1:
			found = group{path: fields[2]}
		}
	}
	switch {
	case found.path == "" || found.path == "/":
		return group{}, errors.New("the pod's process is in no control group of its own")
	case path.Clean(found.path) != found.path, !path.IsAbs(found.path):
		return group{}, fmt.Errorf("the control group %q is not below that of the node: virt-handler must run in the "+
			"node's cgroup namespace", found.path)
	}
	return found, nil
}
