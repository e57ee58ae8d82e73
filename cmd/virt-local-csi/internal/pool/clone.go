package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// clone makes to a file with from's content: by sharing its blocks, in constant time, or else by copying what is not a
// hole. It is not on the disk yet. A copy of a file that is being written would be of no one instant; its caller sees
// to that.
func (p *Pool) clone(ctx context.Context, from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("clone image: %w", err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("clone image: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if p.Reflinks {
		// The kernel waits for writes that are under way, and lets others wait: the clone is of one instant.
		if err := unix.IoctlFileClone(int(target.Fd()), int(source.Fd())); err != nil {
			return fmt.Errorf("clone image: %w", err)
		}
	} else if err := copySparse(ctx, source, target); err != nil {
		return fmt.Errorf("copy image: %w", err)
	}
	return nil
}

// copySparse copies the parts of a file that are not holes.
func copySparse(ctx context.Context, from, to *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		begin, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(from.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		const piece = 16 << 20
		for ; begin < end; begin += piece {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(piece, end-begin)
			if _, err := io.Copy(io.NewOffsetWriter(to, begin), io.NewSectionReader(from, begin, n)); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}
