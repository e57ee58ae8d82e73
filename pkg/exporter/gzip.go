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

const (
	// part is the size of the piece of a disk in one member of the gzip stream, bytes. A client whose connection was
	// cut goes on after the last complete member.
	part = 4 << 20
	// bite is how much of it is read at a time, bytes.
	bite = 256 << 10
)

// holes is a whole part of zeros, compressed.
var holes = sync.OnceValues(func() ([]byte, error) {
	var out bytes.Buffer
	p := newPacking(&out)
	defer p.done()
	err := errors.Join(p.zeros(part), p.end())
	return out.Bytes(), err
})

// compress writes a disk from offset on, as a gzip stream of many members. Holes are not read, and zeros not compressed
// anew. An empty rest, as of an empty disk, is one empty member.
func compress(w io.Writer, disk *os.File, offset, size int64) error {
	p := newPacking(w)
	defer p.done()
	if offset == size {
		return p.end()
	}
	for at := offset; at < size; {
		n := min(part, size-at)
		if err := p.part(disk, at, n); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// packing writes members of a gzip stream.
type packing struct {
	w      io.Writer
	to     *gzip.Writer
	buffer *[bite]byte
}

func newPacking(w io.Writer) *packing {
	p := &packing{w: w, to: packers.Get().(*gzip.Writer), buffer: bites.Get().(*[bite]byte)}
	p.to.Reset(w)
	return p
}

func (p *packing) done() {
	p.to.Reset(nil) // what it has written to is to be freed
	packers.Put(p.to)
	bites.Put(p.buffer)
}

// part writes a part of a disk as a member.
func (p *packing) part(disk *os.File, at, n int64) error {
	blank := int64(0) // zeros at its beginning, which are not written yet
	for done := int64(0); done < n; {
		data := p.buffer[:min(bite, n-done)]
		zero, err := load(disk, data, at+done)
		if err != nil {
			return fmt.Errorf("read the disk at %d: %w", at+done, err)
		}
		if zero && blank == done {
			blank += int64(len(data))
		} else {
			if err := p.zeros(blank); err != nil {
				return err
			}
			blank = -1 // written
			if _, err := p.to.Write(data); err != nil {
				return err
			}
		}
		done += int64(len(data))
	}
	if blank == part {
		packed, err := holes()
		if err == nil {
			_, err = p.w.Write(packed)
		}
		return err
	}
	if err := p.zeros(blank); err != nil {
		return err
	}
	return p.end()
}

// zeros adds n zeros to the member, if there are any.
func (p *packing) zeros(n int64) error {
	for n > 0 {
		some := zeroPage[:min(n, int64(len(zeroPage)))]
		if _, err := p.to.Write(some); err != nil {
			return err
		}
		n -= int64(len(some))
	}
	return nil
}

// end ends the member.
func (p *packing) end() error {
	if err := p.to.Close(); err != nil {
		return err
	}
	p.to.Reset(p.w)
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

// bites are buffers.
var bites = sync.Pool{New: func() any { return new([bite]byte) }}

var packers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // a programming error
	}
	return w
}}
