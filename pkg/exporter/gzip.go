package exporter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"
)

// part is the size of the piece of a disk in one member of the gzip stream, bytes. A client whose connection was cut
// goes on after the last complete member.
const part = 4 << 20

// holes is a whole part of zeros, compressed.
var holes = sync.OnceValues(func() ([]byte, error) { return member(nil, make([]byte, part)) })

// compress writes a disk from offset on, as a gzip stream of many members. Holes are not read, and zeros not compressed
// anew. An empty rest, as of an empty disk, is one empty member.
func compress(w io.Writer, disk *os.File, offset, size int64) error {
	buffer, out := make([]byte, part), []byte(nil)
	if offset == size {
		empty, err := member(nil, nil)
		if err != nil {
			return err
		}
		_, err = w.Write(empty)
		return err
	}
	for at := offset; at < size; {
		data := buffer[:min(part, size-at)]
		zero, err := load(disk, data, at)
		if err != nil {
			return fmt.Errorf("read the disk at %d: %w", at, err)
		}
		var packed []byte
		if zero && len(data) == part {
			packed, err = holes()
		} else {
			out, err = member(out[:0], data)
			packed = out
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(packed); err != nil {
			return err
		}
		at += int64(len(data))
	}
	return nil
}

// load reads a part of a disk, and reports whether it is all zeros.
func load(disk *os.File, data []byte, at int64) (zero bool, err error) {
	next, err := unix.Seek(int(disk.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || err == nil && next >= at+int64(len(data)) {
		clear(data)
		return true, nil
	}
	if _, err := disk.ReadAt(data, at); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return false, err
	}
	return zeros(data), nil
}

var zeroPage [4096]byte

func zeros(data []byte) bool {
	for len(data) > 0 {
		n := min(len(data), len(zeroPage))
		if !bytes.Equal(data[:n], zeroPage[:n]) {
			return false
		}
		data = data[n:]
	}
	return true
}

// member appends data as one member of a gzip stream.
func member(to, data []byte) ([]byte, error) {
	out := bytes.NewBuffer(to)
	packer := packers.Get().(*gzip.Writer)
	defer packers.Put(packer)
	packer.Reset(out)
	if _, err := packer.Write(data); err != nil {
		return nil, err
	}
	if err := packer.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

var packers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // a programming error
	}
	return w
}}
