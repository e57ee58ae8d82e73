package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/service/files/loop"
)

const (
	// sectorSize is that of every loop device, bytes: a clone, whose file shares blocks, has that of its source.
	sectorSize = 512
	// pageSize is what sizes are rounded up to, the largest sector that a disk of a VM has.
	pageSize = 4096
	// The least that the file systems are made in.
	smallestExt4 = 1 << 20
	smallestXFS  = 300 << 20
	// fromXFS is the size from which AnyFS is an XFS. The 64 MiB of its journal are too much of anything smaller.
	fromXFS = 1 << 30
	// journalFrom is the size from which an ext4 gets a journal of ours, journalPart of the volume, journalMost MiB.
	journalFrom, journalPart, journalMost = 16 << 20, 32, 64
	// bytesPerInode is what an ext4 expects files to have: volumes of VMs have few.
	bytesPerInode = "16384"
)

// AnyFS asks for the file system that suits a volume's size, or for its source's. From 1 GiB on that is XFS, which
// grows while it is mounted; an ext4 does so only where root has CAP_SYS_RESOURCE, which it lacks in many containers
// and virtual machines. Below that it is ext4, which has no least size and little overhead.
const AnyFS = "any"

// suitable returns the file system that AnyFS stands for.
func suitable(size int64) string {
	if _, err := exec.LookPath("mkfs.xfs"); err != nil || size < fromXFS {
		return "ext4"
	}
	return "xfs"
}

// RoundUp returns the size that a volume gets for the bytes wanted.
func RoundUp(bytes int64, fsType string) int64 {
	least := int64(pageSize)
	switch fsType {
	case "ext4", AnyFS:
		least = smallestExt4
	case "xfs":
		least = smallestXFS
	}
	return (max(bytes, least) + pageSize - 1) &^ (pageSize - 1)
}

// Create makes the volume v, from its source if it has one, or finds it. It sets v's ID, Family, Created, and FSType
// where that is AnyFS. It fails
// with ErrExists when there is another of that name, ErrNotFound when there is no such source, and ErrFull.
func (p *Pool) Create(ctx context.Context, v Volume) (Volume, error) {
	v.ID, v.Created, v.Formatted = ID(v.Name), p.Now().UTC(), 0
	v.Family = v.ID
	if old, err := p.Volume(v.ID); err == nil {
		return old, sameVolume(old, v)
	} else if !errors.Is(err, ErrNotFound) {
		return v, err
	}
	from, unlock, err := p.source(&v)
	if err != nil {
		return v, err
	}
	defer unlock()
	if v.FSType == AnyFS {
		v.FSType = suitable(v.Size)
	}
	err = p.reserve(v.Size, func() error { return p.makeVolume(ctx, v, from) })
	if err != nil {
		return v, fmt.Errorf("make volume %q: %w", v.Name, err)
	}
	return p.Volume(v.ID)
}

// sameVolume returns an error unless what is wanted is what there is; it may have grown since.
func sameVolume(old, v Volume) error {
	if old.Name != v.Name || old.Size < v.Size || !sameFS(old.FSType, v.FSType) || old.Source != v.Source {
		return fmt.Errorf("volume %q: %w", v.Name, ErrExists)
	}
	return nil
}

// sameFS reports whether a volume that has a file system is what was wanted.
func sameFS(has, wanted string) bool { return has == wanted || wanted == AnyFS && has != "" }

// source finds the image that v is to be made from, empty for none, and holds it until unlock. It sets what v inherits.
func (p *Pool) source(v *Volume) (image string, unlock func(), err error) {
	switch {
	case v.Source.Snapshot != "":
		if unlock, err = p.lock(snapshots, v.Source.Snapshot); err != nil {
			return "", nil, err
		}
		s, err := p.Snapshot(v.Source.Snapshot)
		if err != nil {
			unlock()
			return "", nil, err
		}
		v.Family, v.Formatted = s.Family, s.Formatted
		image = filepath.Join(p.path(snapshots, s.ID), "image")
		return image, unlock, fits(v, s.Size, s.FSType, unlock)
	case v.Source.Volume != "":
		if unlock, err = p.lock(volumes, v.Source.Volume); err != nil {
			return "", nil, err
		}
		s, err := p.Volume(v.Source.Volume)
		if err == nil {
			err = p.still(s)
		}
		if err != nil {
			unlock()
			return "", nil, err
		}
		v.Family, v.Formatted = s.Family, s.Formatted
		return p.Image(s.ID), unlock, fits(v, s.Size, s.FSType, unlock)
	}
	return "", func() {}, nil
}

// fits gives v its source's file system. It returns an error, after it has unlocked, when v cannot have its content.
func fits(v *Volume, size int64, fsType string, unlock func()) error {
	if v.Size >= size && sameFS(fsType, v.FSType) {
		v.FSType = fsType
		return nil
	}
	unlock()
	if v.Size < size {
		return fmt.Errorf("volume %q of %d bytes: its source has %d: %w", v.Name, v.Size, size, ErrExists)
	}
	return fmt.Errorf("volume %q with file system %q: its source has %q: %w", v.Name, v.FSType, fsType, ErrExists)
}

func (p *Pool) makeVolume(ctx context.Context, v Volume, from string) error {
	dir, err := p.begin(v.ID)
	if err != nil {
		return err
	}
	image := filepath.Join(dir, "image")
	if from != "" {
		err = p.clone(ctx, from, image)
	} else {
		err = os.WriteFile(image, nil, 0o600)
	}
	if err == nil {
		err = os.Truncate(image, v.Size)
	}
	if err == nil && from == "" && v.FSType != "" {
		v.Formatted = v.Size
		err = mkfs(v.FSType, image, v.Size)
	}
	if err == nil {
		err = beginRecord(filepath.Join(dir, volumes.record), v)
	}
	if err == nil {
		err = p.publish(volumes, v.ID)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// mkfs makes a file system in an image. Nothing of it is kept back for root, for the size is to be the user's, and
// anyone may write into its root, for pods are not asked to name an fsGroup.
func mkfs(fsType, image string, size int64) error {
	switch fsType {
	case "ext4":
		if err := run("mkfs.ext4", append(ext4Options(size), image)...); err != nil {
			return err
		}
		return run("debugfs", "-w", "-R", "set_inode_field / mode 040777", image)
	case "xfs":
		return mkfsXFS(image)
	}
	return fmt.Errorf("unknown file system %q: use ext4 or xfs", fsType)
}

// ext4Options make an ext4 that leaves as much of a small volume as can be: some 95 % of 64 MiB.
func ext4Options(size int64) []string {
	options := []string{
		"-q", "-F", "-m", "0", "-i", bytesPerInode, "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1",
	}
	if size >= journalFrom {
		journal := min(max(1, size/journalPart>>20), journalMost)
		options = append(options, "-J", fmt.Sprintf("size=%d", journal))
	}
	return options
}

func mkfsXFS(image string) (err error) {
	// What is in the file system from its beginning: a root directory of mode 777.
	prototype := image + ".prototype"
	if err := os.WriteFile(prototype, []byte("/\n0 0\nd--777 0 0\n$\n"), 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(prototype)) }()
	return run("mkfs.xfs", "-q", "-f", "-K", "-p", prototype, image)
}

// Grow makes a volume's image, and its device, as large as size. It never shrinks.
func (p *Pool) Grow(id string, size int64) (Volume, error) {
	unlock, err := p.lock(volumes, id)
	if err != nil {
		return Volume{}, err
	}
	defer unlock()
	v, err := p.Volume(id)
	if err != nil || size <= v.Size {
		return v, err
	}
	err = p.reserve(size-v.Size, func() error {
		if err := os.Truncate(p.Image(id), size); err != nil {
			return err
		}
		v.Size = size
		return p.save(v)
	})
	if err != nil {
		return v, fmt.Errorf("expand volume %q: %w", id, err)
	}
	devices, err := loop.Devices(p.Image(id))
	for _, device := range devices {
		err = errors.Join(err, loop.Grow(device))
	}
	return v, err
}

// Remove erases a volume, unless a node has it attached (ErrInUse). One that is gone is no error.
func (p *Pool) Remove(id string) error {
	unlock, err := p.lock(volumes, id)
	if errors.Is(err, ErrNotFound) {
		if !plainName.MatchString(id) {
			return nil
		}
		return p.finish(volumes, id)
	}
	if err != nil {
		return err
	}
	defer unlock()
	nodes, err := p.attachedNodes(id)
	if err != nil {
		return err
	}
	if len(nodes) > 0 {
		return fmt.Errorf("volume %q on %v: %w", id, nodes, ErrInUse)
	}
	if err := p.detach(id); err != nil {
		return err
	}
	return p.finish(volumes, id)
}

func (p *Pool) finish(k kind, id string) error {
	if err := p.erase(k, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("erase %s %q: %w", k.dir, id, err)
	}
	return nil
}

// Problem returns what is wrong with a volume's image, empty for nothing.
func (p *Pool) Problem(v Volume) string {
	info, err := os.Stat(p.Image(v.ID))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its image is gone: " + p.Image(v.ID)
	case err != nil:
		return err.Error()
	case info.Size() < v.Size:
		return fmt.Sprintf("its image %s has %d bytes of %d", p.Image(v.ID), info.Size(), v.Size)
	}
	return ""
}
