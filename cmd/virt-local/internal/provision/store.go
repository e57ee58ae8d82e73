package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/service/files/loop"
)

// Disk is a Store in a directory of the machine:
//
//	<dir>/<volume>       directory of a file system volume
//	<dir>/<volume>.img   content of a block volume
//	<dir>/<volume>.dev   symbolic link to its loop device, whose number changes with every attachment
//	<dir>/.erase         what is about to be erased, and a record of why: <volume>.json
type Disk struct{ Dir string }

// Directory makes a volume's directory. Anyone may write there: hostPath volumes get no fsGroup.
func (d Disk) Directory(volume string) (string, error) {
	path := filepath.Join(d.Dir, volume)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return "", fmt.Errorf("make volume: %w", err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		return "", fmt.Errorf("make volume: %w", err)
	}
	return path, nil
}

// Block makes a volume's file, of size bytes rounded up to a whole page, and its loop device.
func (d Disk) Block(volume string, size int64) (string, error) {
	if err := os.MkdirAll(d.Dir, 0o755); err != nil {
		return "", fmt.Errorf("make volume: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(d.Dir, volume+".img"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("make volume: %w", err)
	}
	defer f.Close()
	size = (size + 4095) &^ 4095
	if st, err := f.Stat(); err != nil || st.Size() < size {
		if err := errors.Join(err, f.Truncate(size)); err != nil {
			return "", fmt.Errorf("make volume: %w", err)
		}
	}
	return d.attach(volume)
}

// attach makes the volume's link lead to a loop device on its file.
func (d Disk) attach(volume string) (string, error) {
	file, link := filepath.Join(d.Dir, volume+".img"), filepath.Join(d.Dir, volume+".dev")
	device, open, err := loop.Attach(file, loop.Options{})
	if err != nil {
		return "", err
	}
	defer unix.Close(open) // it stays attached
	if now, err := os.Readlink(link); err == nil && now == device {
		return link, nil
	}
	temporary := link + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("link volume: %w", err)
	}
	if err := os.Symlink(device, temporary); err != nil {
		return "", fmt.Errorf("link volume: %w", err)
	}
	if err := os.Rename(temporary, link); err != nil {
		return "", fmt.Errorf("link volume: %w", err)
	}
	return link, nil
}

// AttachAll gives every block volume its loop device again, after a reboot.
func (d Disk) AttachAll() error {
	files, err := filepath.Glob(filepath.Join(d.Dir, "*.img"))
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, file := range files {
		if _, err := d.attach(strings.TrimSuffix(filepath.Base(file), ".img")); err != nil {
			return err
		}
	}
	return nil
}

// detach detaches the volume's loop device, and those that kubelets have stacked on it.
func (d Disk) detach(volume string) error {
	devices, err := loop.Devices(filepath.Join(d.Dir, volume+".img"))
	if err != nil {
		return err
	}
	for _, device := range devices {
		if err := loop.Detach(device); err != nil {
			return err
		}
	}
	return nil
}

// DetachAll detaches the loop devices of all volumes, whose nodes must be gone.
func (d Disk) DetachAll() error {
	volumes, err := d.Volumes()
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		if err := d.detach(volume); err != nil {
			return err
		}
	}
	return nil
}
