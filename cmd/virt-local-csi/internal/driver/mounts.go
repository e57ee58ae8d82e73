package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountPoint is a line of /proc/self/mountinfo, as far as it matters here.
type mountPoint struct {
	// device is major:minor; root is what of the file system is mounted.
	device, root, path string
}

func mountPoints() ([]mountPoint, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseMounts(string(text)), nil
}

func parseMounts(text string) []mountPoint {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var all []mountPoint
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 5 {
			all = append(all, mountPoint{fields[2], unescape.Replace(fields[3]), unescape.Replace(fields[4])})
		}
	}
	return all
}

// isMountPoint reports whether something is mounted exactly there. What does not exist is no error.
func isMountPoint(path string) (bool, error) {
	path, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find %s: %w", path, err)
	}
	all, err := mountPoints()
	if err != nil {
		return false, err
	}
	for _, m := range all {
		if m.path == path {
			return true, nil
		}
	}
	return false, nil
}

// mountedElsewhere finds a path where the device, or the file system on it, is mounted, other than those given.
func mountedElsewhere(device string, except ...string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return "", fmt.Errorf("find %s: %w", device, err)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	known := map[string]bool{device: true}
	for _, path := range except {
		known[path] = true
	}
	all, err := mountPoints()
	if err != nil {
		return "", err
	}
	for _, m := range all {
		if (m.device == number || m.root == "/"+filepath.Base(device)) && !known[m.path] {
			return m.path, nil
		}
	}
	return "", nil
}

// unmount takes away all that is mounted at a path; nothing, or no such path, is no error.
func unmount(path string) error {
	for {
		mounted, err := isMountPoint(path)
		if err != nil || !mounted {
			return err
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}
