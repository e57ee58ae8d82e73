package uploader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// target is the claim.
type target interface {
	// fits refuses a disk that is larger than the claim.
	fits(virtual int64) error
	// write writes an image, and returns the size of the disk if it is known.
	write(image io.Reader, format imageformat.Format) (virtual int64, err error)
	// finish makes the disk of what was written, and returns its size.
	finish(ctx context.Context, format imageformat.Format, virtual int64) (size int64, err error)
	// virtualSize is the size of the image's disk, once it is finished.
	virtualSize() int64
	// untouched reports whether a disk is there that was there before.
	untouched() bool
	// discard removes what is not finished.
	discard() error
}

const mebibyte = 1 << 20

// imageMetadata is the part of a claim's free space that an image leaves for the map of its own blocks.
const imageMetadata = 128

// claim holds what both kinds of target have.
type claim struct {
	o Options
	// limit is the greatest size of a disk, bytes.
	limit int64
	// virtual is virtualSize.
	virtual int64
	// begun says that something was written to what a VM would see.
	begun bool
}

func openTarget(o Options) (target, error) {
	if o.Device != "" {
		return &device{claim{o: o}}, nil
	}
	return openDirectory(o)
}

func (c *claim) fits(virtual int64) error {
	if virtual > c.limit {
		return &imageformat.RefusedError{
			Reason: fmt.Sprintf("the image's disk has %d bytes, and the claim has room for %d: "+
				"repeat the upload to a larger claim", virtual, c.limit),
		}
	}
	return nil
}

func (c *claim) virtualSize() int64 { return c.virtual }

// stage keeps an image that is to be converted in a file.
func (c *claim) stage(path string, image io.Reader) error {
	f, err := create(path)
	if err != nil {
		return err
	}
	// Sparse, as it may have come out of a compressed file of any size; an image is little larger than its disk.
	_, err = writeSparse(f, image, c.limit+c.limit/8+64*mebibyte)
	return errors.Join(err, f.Close())
}

// check reads the header of a whole image, and refuses what qemu-img is not to see.
func (c *claim) check(path string, format imageformat.Format) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	image, err := imageformat.Check(f, info.Size(), format)
	if err != nil {
		return err
	}
	c.virtual = image.VirtualSize
	return c.fits(c.virtual)
}

// create makes a file in the place of any that is there.
func create(path string) (*os.File, error) {
	if err := remove(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o660)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// directory is a claim with a file system.
type directory struct {
	claim
	free int64
	// there says that a disk was there before.
	there bool
}

func openDirectory(o Options) (target, error) {
	d := &directory{claim: claim{o: o}}
	for _, name := range []string{unfinished, staged} { // of a pod that was killed
		if err := remove(filepath.Join(o.Directory, name)); err != nil {
			return nil, fmt.Errorf("the claim cannot be written: %w", err)
		}
	}
	var s unix.Statfs_t
	if err := unix.Statfs(o.Directory, &s); err != nil {
		return nil, fmt.Errorf("look at the claim's file system: %w", err)
	}
	d.free = int64(s.Bavail) * s.Bsize
	d.limit = d.free - d.free/imageMetadata
	if o.Capacity > 0 {
		d.limit = min(d.limit, o.Capacity)
	}
	_, err := os.Lstat(d.path(diskImage))
	d.there = err == nil
	return d, nil
}

func (d *directory) path(name string) string { return filepath.Join(d.o.Directory, name) }

func (d *directory) write(image io.Reader, format imageformat.Format) (int64, error) {
	if format != imageformat.Raw {
		return 0, d.stage(d.path(staged), image)
	}
	f, err := create(d.path(unfinished))
	if err != nil {
		return 0, err
	}
	n, err := writeSparse(f, image, d.limit)
	return n, errors.Join(err, f.Close())
}

func (d *directory) finish(ctx context.Context, format imageformat.Format, virtual int64) (int64, error) {
	d.virtual = virtual
	if format != imageformat.Raw {
		if err := d.check(d.path(staged), format); err != nil {
			return 0, err
		}
		f, err := create(d.path(unfinished))
		if err != nil {
			return 0, err
		}
		if err := errors.Join(f.Truncate(d.virtual), f.Close()); err != nil {
			return 0, err
		}
		if err := d.o.convert(ctx, d.path(staged), format, d.path(unfinished), true); err != nil {
			return 0, err
		}
		if err := remove(d.path(staged)); err != nil {
			return 0, err
		}
	}
	f, err := os.OpenFile(d.path(unfinished), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	size := d.diskSize()
	if err := errors.Join(f.Truncate(size), f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	d.begun = true
	if err := os.Rename(d.path(unfinished), d.path(diskImage)); err != nil {
		return 0, err
	}
	return size, syncDirectory(d.o.Directory)
}

// diskSize returns the size of a disk that is made on an empty claim: its capacity less what the file system needs, and
// no more than is free.
func (d *directory) diskSize() int64 {
	size := d.limit
	if d.o.Capacity > 0 {
		size = min(size, int64(float64(d.o.Capacity)*(1-d.o.Overhead)))
	}
	const sector = 512
	return max(size/mebibyte*mebibyte, (d.virtual+sector-1)/sector*sector)
}

func syncDirectory(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *directory) untouched() bool { return d.there && !d.begun }

func (d *directory) discard() error {
	return errors.Join(remove(d.path(unfinished)), remove(d.path(staged)))
}

// device is a claim that is a block device. It is opened when bytes have come: virt-handler, which leads to the server,
// gives it to the server's user then.
type device struct{ claim }

func (d *device) fits(virtual int64) error {
	f, err := os.OpenFile(d.o.Device, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the claim cannot be written: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("look at the claim's device: %w", err)
	}
	d.limit = size
	return d.claim.fits(virtual)
}

func (d *device) staged() string { return filepath.Join(d.o.Scratch, staged) }

func (d *device) write(image io.Reader, format imageformat.Format) (int64, error) {
	if format != imageformat.Raw {
		return 0, d.stage(d.staged(), image)
	}
	f, err := os.OpenFile(d.o.Device, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	d.begun = true
	n, err := writeDevice(f, image, d.limit)
	return n, errors.Join(err, f.Close())
}

func (d *device) finish(ctx context.Context, format imageformat.Format, virtual int64) (int64, error) {
	d.virtual = virtual
	if format != imageformat.Raw {
		if err := d.check(d.staged(), format); err != nil {
			return 0, err
		}
		d.begun = true
		if err := d.o.convert(ctx, d.staged(), format, d.o.Device, false); err != nil {
			return 0, err
		}
	}
	f, err := os.OpenFile(d.o.Device, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	// What an older disk has left at the end is none of this one.
	return d.limit, errors.Join(zeroDevice(f, d.virtual, d.limit-d.virtual), f.Sync(), f.Close())
}

func (d *device) untouched() bool { return !d.begun }
func (d *device) discard() error  { return remove(d.staged()) }
