package instance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is one process of a pod.
type Process struct {
	PID     int
	Command string // the executable's base name
}

// Processes lists the processes of a pod on whichever node of this machine it runs; they are found by the pod's UID
// in their cgroup's path.
func Processes(podUID string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A process may end between these reads; then it is not one of the pod's any more.
		cgroup, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cgroup"))
		if err != nil || !bytes.Contains(cgroup, []byte("pod"+podUID)) {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		if err != nil {
			continue
		}
		found = append(found, Process{pid, filepath.Base(exe)})
	}
	return found, nil
}

// Memory reads a line of /proc/<pid>/smaps_rollup, such as Pss or Rss, in bytes.
func (p Process) Memory(field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, field+":")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		return kib << 10, err
	}
	return 0, fmt.Errorf("smaps_rollup of %d has no %s", p.PID, field)
}
