package pool

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/service/files/loop"
	"github.com/virtkit/virtkit/pkg/service/files/reflink"
)

// What a pool has in its directory. virt-local looks for the same names (cmd/virt-local/internal/csi), and tests/arch
// compares them.
const (
	poolDir     = "pool"
	poolVolumes = "volumes"
	poolImage   = "pool.img"
)

const (
	// smallest is the least that an XFS of ours has: mkfs.xfs refuses less than 300 MiB.
	smallest = 1 << 30
	// logSize is the XFS' journal: its smallest, for that is written when the file system is made.
	logSize = "64m"
)

// Open opens the pool in dir, and makes it the first time. Where dir's own file system has no reflinks the pool is an
// XFS in a file, which is mounted in the mount namespace of the caller, who must have one that is not the machine's;
// the kernel unmounts and detaches it when the last that uses it has ended. Without mkfs.xfs, or XFS in the kernel, the
// pool is a directory whose files are copied whole, Reflinks says so.
func Open(dir string) (*Pool, error) {
	root := filepath.Join(dir, poolDir)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make the pool: %w", err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock the pool: %w", err)
	}
	image := filepath.Join(dir, poolImage)
	_, err = os.Stat(image)
	switch {
	case err == nil:
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("open the pool: %w", err)
	default:
		reflinks, err := reflink.Possible(root)
		if err != nil {
			return nil, err
		}
		_, missing := exec.LookPath("mkfs.xfs")
		if used, err := inUse(root); err != nil || reflinks || used || missing != nil {
			if err != nil {
				return nil, err
			}
			return at(root, reflinks, "")
		}
		if err := format(dir, image); err != nil {
			return nil, err
		}
	}
	if err := mount(image, root); err != nil {
		return nil, err
	}
	return at(root, true, dir)
}

// Limits returns what users are to know of a pool that has no reflinks, and "" for one that has.
func (p *Pool) Limits() string {
	if p.Reflinks {
		return ""
	}
	return "There is neither a file system with reflinks nor mkfs.xfs: clones are copies, and volumes in use " +
		"cannot be copied. Install xfsprogs before the cluster is made"
}

// inUse reports whether a pool that is a directory has entries, so that it stays one.
func inUse(root string) (bool, error) {
	entries, err := os.ReadDir(filepath.Join(root, volumes.dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("open the pool: %w", err)
	}
	return len(entries) > 0, nil
}

// format makes the XFS in a sparse file as large as the file system that it is on: what there is room for is decided
// anew for each volume.
func format(dir, image string) (err error) {
	var host unix.Statfs_t
	if err := unix.Statfs(dir, &host); err != nil {
		return fmt.Errorf("make the pool: %w", err)
	}
	temporary := image + ".new"
	f, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("make the pool: %w", err)
	}
	size := max(smallest, int64(host.Blocks)*host.Bsize>>30<<30)
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return fmt.Errorf("make the pool: %w", err)
	}
	if err := run("mkfs.xfs", "-q", "-f", "-K", "-m", "reflink=1", "-l", "size="+logSize, temporary); err != nil {
		return fmt.Errorf("make the pool: %w", err)
	}
	if err := os.Rename(temporary, image); err != nil {
		return fmt.Errorf("make the pool: %w", err)
	}
	return nil
}

// mount mounts the pool's XFS, unless this mount namespace has it.
func mount(image, root string) error {
	var at, parent unix.Stat_t
	if err := errors.Join(unix.Stat(root, &at), unix.Stat(filepath.Dir(root), &parent)); err != nil {
		return fmt.Errorf("mount the pool: %w", err)
	}
	if at.Dev != parent.Dev {
		return nil
	}
	device, open, err := loop.Attach(image, loop.Options{Autoclear: true, SectorSize: sectorSize})
	if err != nil {
		return fmt.Errorf("mount the pool: %w", err)
	}
	defer unix.Close(open)
	// discard gives blocks of what is erased back to the machine.
	if err := unix.Mount(device, root, "xfs", unix.MS_NOATIME|unix.MS_NOSUID|unix.MS_NODEV, "discard"); err != nil {
		return fmt.Errorf("mount the pool (%s on %s): %w", device, root, err)
	}
	return nil
}

// Release detaches every device of the pool in dir, whose users must have ended.
func Release(dir string) error {
	image, root := filepath.Join(dir, poolImage), filepath.Join(dir, poolDir)
	devices, err := loop.Devices(image)
	if err != nil {
		return err
	}
	var attached []string
	for _, device := range devices {
		on, err := loop.DevicesOnFilesystem(device)
		if err != nil {
			return err
		}
		attached = append(attached, on...)
	}
	images, err := filepath.Glob(filepath.Join(root, volumes.dir, "*", "image"))
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, file := range images {
		on, err := loop.Devices(file)
		if err != nil {
			return err
		}
		attached = append(attached, on...)
	}
	for _, device := range append(attached, devices...) {
		if err := loop.Detach(device); err != nil {
			return err
		}
	}
	return gone(image)
}

// gone waits until the kernel has let go of the pool's file: it unmounts what it held for the sake of images only after
// their devices are detached.
func gone(image string) error {
	const patience, interval = 5 * time.Second, 10 * time.Millisecond
	for deadline := time.Now().Add(patience); ; time.Sleep(interval) {
		devices, err := loop.Devices(image)
		if err != nil || len(devices) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is still in use by %s: what has the pool mounted? (see lsns -t mnt)", image,
				strings.Join(devices, ", "))
		}
	}
}

// run runs a program, whose words become part of the error. One that says that the disk is full fails with ENOSPC.
func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if strings.Contains(strings.ToLower(string(out)), unix.ENOSPC.Error()) {
		err = errors.Join(err, unix.ENOSPC)
	}
	return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
}
