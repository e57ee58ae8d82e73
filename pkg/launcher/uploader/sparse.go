package uploader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

const (
	// chunk is the most that is read and written at once, bytes; block the unit that is left out when it is zero.
	chunk = 256 << 10
	block = 4 << 10
	// syncEvery is the number of bytes after which the written data goes to the disk, so that the end need not wait for
	// all of it and the pod's memory is not full of it.
	syncEvery = 64 << 20
)

var zeros = make([]byte, chunk)

// writeSparse writes an image to a new file, without blocks that are zero, and returns its size.
func writeSparse(f *os.File, image io.Reader, limit int64) (int64, error) {
	size, err := eachChunk(f, image, limit, func(p []byte, at int64) error { return writeBlocks(f, p, at) })
	if err != nil {
		return size, err
	}
	return size, f.Truncate(size)
}

// writeBlocks writes the blocks that are not zero.
func writeBlocks(f *os.File, p []byte, at int64) error {
	for begin := 0; begin < len(p); {
		end := begin
		for end < len(p) && !isZero(p[end:min(end+block, len(p))]) {
			end = min(end+block, len(p))
		}
		if end > begin {
			if _, err := f.WriteAt(p[begin:end], at+int64(begin)); err != nil {
				return err
			}
		}
		begin = end
		for begin < len(p) && isZero(p[begin:min(begin+block, len(p))]) {
			begin = min(begin+block, len(p))
		}
	}
	return nil
}

// writeDevice writes an image to a device that may have old data on it, and returns its size.
func writeDevice(f *os.File, image io.Reader, limit int64) (int64, error) {
	var zero, length int64 // what is to be made zero
	flush := func() error {
		err := zeroDevice(f, zero, length)
		length = 0
		return err
	}
	size, err := eachChunk(f, image, limit, func(p []byte, at int64) error {
		if isZero(p) {
			if length == 0 {
				zero = at
			}
			length += int64(len(p))
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		_, err := f.WriteAt(p, at)
		return err
	})
	if err != nil {
		return size, err
	}
	return size, flush()
}

// zeroDevice makes a part of a device zero, by the device itself where it can.
func zeroDevice(f *os.File, at, length int64) error {
	if length == 0 {
		return nil
	}
	const sector = 512
	aligned := at%sector == 0 && length%sector == 0
	if aligned && unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, at, length) == nil {
		return nil
	}
	for length > 0 {
		n := min(length, chunk)
		if _, err := f.WriteAt(zeros[:n], at); err != nil {
			return err
		}
		at, length = at+n, length-n
	}
	return nil
}

// eachChunk hands an image over in pieces, and refuses one that is larger than limit.
func eachChunk(f *os.File, image io.Reader, limit int64, write func(p []byte, at int64) error) (int64, error) {
	buffer := make([]byte, chunk)
	var size, synced int64
	for {
		n, err := io.ReadFull(image, buffer)
		if size+int64(n) > limit {
			return size, &imageformat.RefusedError{
				Reason: fmt.Sprintf("the image's disk has more than the %d bytes that the claim has room for: "+
					"repeat the upload to a larger claim", limit),
			}
		}
		if n > 0 {
			if err := write(buffer[:n], size); err != nil {
				return size, err
			}
			size += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return size, nil
		case err != nil:
			return size, err
		}
		if size-synced >= syncEvery {
			synced = size
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				return size, err
			}
		}
	}
}

func isZero(p []byte) bool { return bytes.Equal(p, zeros[:len(p)]) }

// full are the errors of a file system that has no room: of the disk, or of a quota.
var full = []unix.Errno{unix.ENOSPC, unix.EDQUOT}

// errFull says so to the user.
var errFull = errors.New("the claim is full: repeat the upload to a larger one")

// isFull reports whether an error is one of full.
func isFull(err error) bool {
	return slices.ContainsFunc(full, func(code unix.Errno) bool { return errors.Is(err, code) })
}

// saysFull reports whether a program has said one of full, whatever letters it begins with.
func saysFull(said string) bool {
	said = strings.ToLower(said)
	return slices.ContainsFunc(full, func(code unix.Errno) bool { return strings.Contains(said, code.Error()) })
}
