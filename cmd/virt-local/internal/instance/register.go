package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Register holds what the instances of one machine share: who has which slot, and the kernel settings
// that were changed for all of them, to be put back by the last to leave. It is a directory that
// exists only while an instance does.
//
//	<dir>/slot-3          the state directory of slot 3's owner
//	<dir>/sysctl.json     previous values of changed settings
type Register struct {
	dir  string
	lock *os.File
}

// RegisterDir is the register of this machine. It is on a tmpfs: a reboot clears it, like the
// addresses and settings it names.
const RegisterDir = "/run/virt-local"

// OpenRegister makes the directory if need be and locks it against other commands; Close it soon.
func OpenRegister(dir string) (*Register, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open the register of instances: %w", err)
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open the register of instances: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock the register of instances: %w", err)
		}
		// The last instance to leave may have removed the directory while we waited for the lock.
		if held, err := f.Stat(); err == nil {
			if now, err := os.Stat(dir); err == nil && os.SameFile(held, now) {
				return &Register{dir, f}, nil
			}
		}
		f.Close()
	}
}

// Close unlocks the register, and removes it when it is empty.
func (r *Register) Close() error {
	if err := os.Remove(r.dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
		r.lock.Close()
		return fmt.Errorf("remove the register of instances: %w", err)
	}
	return r.lock.Close()
}

// Slots returns the state directory of each slot's owner. An owner whose state directory is gone
// holds nothing any more.
func (r *Register) Slots() (map[Slot]string, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("read the register of instances: %w", err)
	}
	owners := map[Slot]string{}
	for _, e := range entries {
		number, found := strings.CutPrefix(e.Name(), "slot-")
		n, err := strconv.Atoi(number)
		if !found || err != nil {
			continue
		}
		owner, err := os.ReadFile(filepath.Join(r.dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the register of instances: %w", err)
		}
		if _, err := os.Stat(filepath.Join(string(owner), "instance.json")); errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(filepath.Join(r.dir, e.Name())); err != nil {
				return nil, fmt.Errorf("clean the register of instances: %w", err)
			}
			continue
		}
		owners[Slot(n)] = string(owner)
	}
	return owners, nil
}

// Claim gives in its slot: the one it has had if that is still free, else a new one. A new instance
// is saved before the slot is its own, so that a crash in between leaves no ownerless slot.
func (r *Register) Claim(in *Instance, fresh bool, routed []netip.Prefix) error {
	owners, err := r.Slots()
	if err != nil {
		return err
	}
	taken, err := asleep(filepath.Dir(DefaultStateDir(in.Name)), in.StateDir)
	if err != nil {
		return err
	}
	if !fresh {
		taken = map[Slot]bool{}
	}
	for s, owner := range owners {
		if owner == in.StateDir {
			if fresh {
				in.Slot = s
			}
			if s == in.Slot {
				return in.Save()
			}
		}
		taken[s] = true
	}
	if fresh {
		if in.Slot, err = ChooseSlot(taken, routed); err != nil {
			return err
		}
	} else if taken[in.Slot] {
		return fmt.Errorf("the networks of instance %q (slot %d) are now used by the instance in %s: bring one of "+
			"them down (virt-local down --state-dir DIR)", in.Name, in.Slot, owners[in.Slot])
	}
	if err := in.Save(); err != nil {
		return err
	}
	return WriteFile(filepath.Join(r.dir, fmt.Sprintf("slot-%d", in.Slot)), []byte(in.StateDir), 0o600)
}

// asleep returns the slots of the instances in a directory of state directories, other than self: one that is down
// with its data kept, or since a reboot, wants its addresses again.
func asleep(parent, self string) (map[Slot]bool, error) {
	files, err := filepath.Glob(filepath.Join(parent, "*", "instance.json"))
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	slots := map[Slot]bool{}
	for _, file := range files {
		if dir := filepath.Dir(file); dir != self {
			if other, err := Load(dir); err == nil {
				slots[other.Slot] = true
			}
		}
	}
	return slots, nil
}

// Release gives in's slot back and reports whether no instance is left.
func (r *Register) Release(in *Instance) (last bool, err error) {
	owners, err := r.Slots()
	if err != nil {
		return false, err
	}
	left := len(owners)
	for s, owner := range owners {
		if owner == in.StateDir {
			if err := os.Remove(filepath.Join(r.dir, fmt.Sprintf("slot-%d", s))); err != nil {
				return false, fmt.Errorf("release slot %d: %w", s, err)
			}
			left--
		}
	}
	return left == 0, nil
}

func (r *Register) sysctlFile() string { return filepath.Join(r.dir, "sysctl.json") }

// RaiseSysctls sets each kernel setting (by its path below /proc/sys) that is below the wanted value,
// and remembers what it was.
func (r *Register) RaiseSysctls(want map[string]int) error {
	before, err := r.changedSysctls()
	if err != nil {
		return err
	}
	for name, value := range want {
		path := filepath.Join("/proc/sys", name)
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read kernel setting: %w", err)
		}
		now, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return fmt.Errorf("read kernel setting %s: %w", name, err)
		}
		if now >= value {
			continue
		}
		if _, known := before[name]; !known {
			before[name] = now
		}
		b, err = json.Marshal(before)
		if err != nil {
			return fmt.Errorf("remember kernel settings: %w", err)
		}
		if err := WriteFile(r.sysctlFile(), b, 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(value)), 0); err != nil {
			return fmt.Errorf("raise kernel setting %s to %d: %w", name, value, err)
		}
	}
	return nil
}

// RestoreSysctls puts back what RaiseSysctls changed.
func (r *Register) RestoreSysctls() error {
	before, err := r.changedSysctls()
	if err != nil {
		return err
	}
	for name, value := range before {
		err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(strconv.Itoa(value)), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has gone with its link
			return fmt.Errorf("restore kernel setting %s: %w", name, err)
		}
	}
	if err := os.Remove(r.sysctlFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore kernel settings: %w", err)
	}
	return nil
}

func (r *Register) changedSysctls() (map[string]int, error) {
	changed := map[string]int{}
	b, err := os.ReadFile(r.sysctlFile())
	if errors.Is(err, fs.ErrNotExist) {
		return changed, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &changed)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.sysctlFile(), err)
	}
	return changed, nil
}
