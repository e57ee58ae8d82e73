package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/client/action/part"
)

// blockSize is tar's: each member begins at a multiple of it, after a header of one.
const blockSize = 512

// Storage is what a Writer writes to: an *os.File.
type Storage interface {
	io.WriterAt
	Truncate(size int64) error
}

// Writer writes a file. The index is at its beginning and known at its end, so room is left for it.
type Writer struct {
	to      Storage
	created time.Time
	// room is how large the index may be, at where the next member begins.
	room, at int64
}

// NewWriter begins a file for a VM of so many volumes, in the file or not.
func NewWriter(to Storage, created time.Time, volumes int) *Writer {
	const fixed, ofVolume = 4 << 10, 2 << 10
	w := &Writer{to: to, created: created.UTC().Truncate(time.Second), room: fixed + ofVolume*int64(volumes)}
	w.at = blockSize + w.room
	return w
}

// header returns the header of a member, which has one block whatever its size: GNU's way of numbers.
func (w *Writer) header(name string, size int64) ([]byte, error) {
	var out bytes.Buffer
	err := tar.NewWriter(&out).WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: w.created, Format: tar.FormatGNU,
	})
	if err == nil && out.Len() != blockSize {
		err = fmt.Errorf("its header has %d bytes", out.Len())
	}
	if err != nil {
		return nil, fmt.Errorf("write member %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// Entry is a member that is being written. Begin, which may be called again, begins it anew.
type Entry struct {
	w     *Writer
	name  string
	start int64
	size  int64
	sum   hash.Hash
	// mark is told where another run could go on; nil for nobody.
	mark func(*Entry, export.Point) error
}

// Entry begins a member. The one before must have ended.
func (w *Writer) Entry(name string) *Entry {
	return &Entry{w: w, name: name, start: w.at + blockSize, sum: sha256.New()}
}

// Begin implements export.Output.
func (e *Entry) Begin() error {
	e.size = 0
	e.sum.Reset()
	return e.w.to.Truncate(e.start)
}

func (e *Entry) Write(p []byte) (int, error) {
	n, err := e.w.to.WriteAt(p, e.start+e.size)
	_, _ = e.sum.Write(p[:n]) // never fails
	e.size += int64(n)
	return n, err
}

// Mark implements export.Marker.
func (e *Entry) Mark(at export.Point) error {
	if e.mark == nil {
		return nil
	}
	return e.mark(e, at)
}

// Skip implements export.Output. What comes compressed has no holes.
func (e *Entry) Skip(n int64) error {
	_, err := e.Write(make([]byte, n))
	return err
}

// End ends a member and returns it.
func (e *Entry) End() (Member, error) {
	header, err := e.w.header(e.name, e.size)
	if err != nil {
		return Member{}, err
	}
	if _, err := e.w.to.WriteAt(header, e.start-blockSize); err != nil {
		return Member{}, err
	}
	if err := e.w.to.Truncate(e.end()); err != nil { // with zeros
		return Member{}, err
	}
	e.w.at = e.end()
	return Member{File: e.name, Bytes: e.size, SHA256: hex.EncodeToString(e.sum.Sum(nil))}, nil
}

// end is where the next member begins.
func (e *Entry) end() int64 { return (e.start + e.size + blockSize - 1) / blockSize * blockSize }

func (w *Writer) whole(name string, data []byte) (Member, error) {
	entry := w.Entry(name)
	if _, err := entry.Write(data); err != nil {
		return Member{}, err
	}
	return entry.End()
}

// Finish writes the index and the checksums, and returns how large the file is.
func (w *Writer) Finish(index *Index) (int64, error) {
	index.APIVersion, index.Kind, index.Created = Version, Kind, w.created
	if err := index.check(); err != nil {
		return 0, fmt.Errorf("make the index: %w", err)
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return 0, fmt.Errorf("make the index: %w", err)
	}
	if int64(len(text)) >= w.room {
		return 0, fmt.Errorf("the index has %d bytes, and there is room for %d", len(text), w.room)
	}
	text = append(text, bytes.Repeat([]byte(" "), int(w.room)-len(text)-1)...)
	text = append(text, '\n')
	sum := sha256.Sum256(text)
	if _, err := w.whole(sumsFile, []byte(index.sums(hex.EncodeToString(sum[:])))); err != nil {
		return 0, err
	}
	end := w.at + 2*blockSize // tar's end
	if err := w.to.Truncate(end); err != nil {
		return 0, err
	}
	header, err := w.header(indexFile, w.room)
	if err != nil {
		return 0, err
	}
	_, err = w.to.WriteAt(append(header, text...), 0)
	return end, err
}

// Part is the file while it is being written, beside the one that is wanted.
type Part struct {
	*part.File
	// noted says that another run can go on with it.
	noted bool
}

// NewPart makes .FILE.part for FILE, or takes the one of a run that was killed. Only its owner may read it: the disks
// have what their guests know. Errors: part.ErrBusy.
func NewPart(path string) (*Part, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file; name one that is written anew", path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	file, err := part.Open(path, 0o600)
	if err != nil {
		return nil, err
	}
	return &Part{File: file}, nil
}

// Note notes what another run needs to go on.
func (p *Part) Note(what any) error {
	err := p.File.Note(what)
	p.noted = p.noted || err == nil
	return err
}

// Forget removes the note, and what is in the file.
func (p *Part) Forget() error {
	p.noted = false
	return errors.Join(p.File.Forget(), p.Truncate(0))
}
