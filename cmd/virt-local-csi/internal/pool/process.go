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

// process is a process for good: no other has the same, but for one of its namespace that begins in the same clock
// tick; to take a dead one for alive only keeps data. It is known by that in every PID namespace, where its number is
// another. The kernel gives the numbers of namespaces away again, at once.
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

// ownInit describes the first process of the caller's PID namespace, which /proc shows.
func ownInit() (process, error) {
	p, err := identifyStart("/proc/1")
	if err != nil {
		return process{}, err
	}
	p.Namespace, err = namespaceOf("/proc/self") // that of the first may be seen by those only who may trace it
	return p, err
}

// identify describes the process that has a directory of /proc. It fails with errEnded, also for one that has ended and
// that its parent has not asked about, and with a permission error for one that the caller may not trace.
func identify(dir string) (process, error) {
	p, err := identifyStart(dir)
	if err == nil {
		p.Namespace, err = namespaceOf(dir)
	}
	return p, err
}

func namespaceOf(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "ns/pid"), &st); err != nil {
		return 0, describing(dir, err)
	}
	return st.Ino, nil
}

// identifyStart describes a process but for its namespace.
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

// living returns those of the processes that the caller sees and that have not ended: all on the machine, those of the
// node on a node. Of a process whose namespace the caller may not see, the start decides: to take a dead one for alive
// only keeps data.
func living(wanted []process) (map[process]bool, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	alive := map[process]bool{}
	for _, dir := range dirs {
		found, err := identifyStart(dir)
		for _, p := range wanted {
			if err != nil || found.Boot != p.Boot || found.Start != p.Start {
				continue
			}
			var namespace uint64
			if namespace, err = namespaceOf(dir); errors.Is(err, os.ErrPermission) {
				namespace, err = p.Namespace, nil
			}
			if err == nil && namespace == p.Namespace {
				alive[p] = true
			}
		}
		if err != nil && !errors.Is(err, errEnded) && !errors.Is(err, os.ErrPermission) {
			return nil, err
		}
	}
	return alive, nil
}
