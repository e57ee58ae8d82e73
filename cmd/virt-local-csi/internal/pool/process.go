package pool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a process for good: no other, earlier or later, has the same. It is known by that in every PID namespace,
// where its number is another. The kernel gives the numbers of namespaces away again, at once.
type process struct {
	// Boot is the kernel's boot id.
	Boot string `json:"boot"`
	// Namespace is the number of its PID namespace.
	Namespace uint64 `json:"namespace"`
	// Start is when it began, in clock ticks since boot.
	Start uint64 `json:"start"`
}

// errEnded says that a process has ended.
var errEnded = errors.New("the process has ended")

// identify describes the process that has a directory of /proc. It fails with errEnded, also for one that has ended and
// that its parent has not asked about, and with a permission error for one that the caller may not look at.
func identify(dir string) (process, error) {
	p, err := identifyStart(dir)
	if err != nil {
		return process{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "ns/pid"), &st); err != nil {
		return process{}, describing(dir, err)
	}
	p.Namespace = st.Ino
	return p, nil
}

// identifyStart describes a process but for its namespace, which only those may see who may trace it.
func identifyStart(dir string) (process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, fmt.Errorf("read the kernel's boot id: %w", err)
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, describing(dir, err)
	}
	state, start, err := parseStat(stat)
	if err != nil {
		return process{}, describing(dir, err)
	}
	if state == "Z" || state == "X" {
		return process{}, describing(dir, errEnded)
	}
	return process{Boot: strings.TrimSpace(string(boot)), Start: start}, nil
}

func describing(dir string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		err = errEnded
	}
	return fmt.Errorf("describe the process %s: %w", dir, err)
}

// parseStat reads a line of /proc/PID/stat. The second field, in parentheses, may hold anything.
func parseStat(line []byte) (state string, start uint64, err error) {
	const stateField, startField = 3, 22 // as proc(5) counts
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) <= startField-stateField {
		return "", 0, fmt.Errorf("unexpected line %q", line)
	}
	start, err = strconv.ParseUint(string(fields[startField-stateField]), 10, 64)
	return string(fields[0]), start, err
}

// living are those of the processes that have not ended, of which the caller sees and may trace: root on the machine
// all, on a node those of the node.
func living(wanted []process) (map[process]bool, error) {
	starts := map[uint64]bool{}
	for _, p := range wanted {
		starts[p.Start] = true
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	alive := map[process]bool{}
	for _, dir := range dirs {
		p, err := identifyStart(dir)
		if err == nil && starts[p.Start] {
			p, err = identify(dir)
		}
		switch {
		case err == nil:
			alive[p] = true
		case !errors.Is(err, errEnded) && !errors.Is(err, os.ErrPermission):
			return nil, err
		}
	}
	return alive, nil
}
