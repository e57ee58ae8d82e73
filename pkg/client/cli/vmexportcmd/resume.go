package vmexportcmd

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/action/export"
)

// noteEach is how often the state of a download is noted; a killed one loses so much.
const noteEach = 5 * time.Second

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var zeros [64 << 10]byte

// what says of what a download is: only the same goes on with a file.
type what struct {
	Namespace string `json:"namespace"`
	Export    string `json:"export"`
	Volume    string `json:"volume,omitempty"`
	Format    string `json:"format"`
}

// state is what is noted of a download.
type state struct {
	What what `json:"what"`
	// Made is the UID of the export that was made for it.
	Made types.UID `json:"made,omitempty"`
	// Point is where the download has come to, in the content, and File where in the file, of which Sum is a checksum.
	Point export.Point `json:"point"`
	File  int64        `json:"file"`
	Sum   uint32       `json:"sum"`
}

// count adds to the size and the checksum.
func (t *target) count(p []byte) {
	t.size += int64(len(p))
	t.sum = crc32.Update(t.sum, castagnoli, p)
}

// Mark implements export.Marker.
func (t *target) Mark(at export.Point) error {
	if t.part == nil {
		return nil
	}
	t.last = &state{What: t.what, Made: t.made, Point: at, File: t.size, Sum: t.sum}
	t.resumed = false
	if t.now().Sub(t.noted) < noteEach {
		return nil
	}
	return t.keepNote()
}

// take notes the export that was made for the download before anything comes: who goes on after a kill takes it over.
func (t *target) take(made types.UID) error {
	t.made = made
	if t.part == nil || t.last != nil {
		return nil
	}
	return t.part.Note(&state{What: t.what, Made: made})
}

// keepNote notes the newest state. What has come after it is taken off: on a disk that is full, that may be the room
// that the note needs.
func (t *target) keepNote() error {
	// A hole at the end is none of the file's yet.
	if err := t.part.Truncate(t.last.File); err != nil {
		return err
	}
	if err := t.part.Note(t.last); err != nil {
		return err
	}
	t.kept, t.noted = t.last, t.now()
	return nil
}

// resume returns where the run before has come to, and which export it has made; nil when the download is to begin. It
// says what becomes of what is there.
func (t *target) resume(ctx context.Context) (*export.Point, types.UID, error) {
	if t.part == nil {
		return nil, "", nil
	}
	var was state
	if !t.part.Noted(&was) {
		return nil, "", nil
	}
	if !was.Point.Valid() { // killed before anything had come
		if was.What != t.what {
			return nil, "", nil
		}
		return nil, was.Made, nil
	}
	name := t.part.Name()
	if was.What == t.what && was.File <= 0 { // written by nobody of ours: something has come
		t.note("%s is not as it was written, so the download begins anew", name)
		return nil, was.Made, nil
	}
	if was.What != t.what {
		t.note("%s is of another download (%s), and is overwritten", name, was.What)
		return nil, "", nil
	}
	sum, err := t.sumOf(ctx, was.File)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || err == nil && sum != was.Sum:
		t.note("%s is not as it was written, so the download begins anew", name)
		return nil, was.Made, nil
	case err != nil:
		return nil, "", fmt.Errorf("read %s: %w", name, err)
	}
	if err := t.part.Truncate(was.File); err != nil {
		return nil, "", err
	}
	if _, err := t.part.Seek(was.File, io.SeekStart); err != nil {
		return nil, "", err
	}
	t.size, t.sum, t.last, t.kept, t.resumed = was.File, was.Sum, &was, &was, true
	t.note("going on with %s, which has %d of %d bytes", name, was.Point.Done, was.Point.Size)
	return &was.Point, was.Made, nil
}

// sumOf reads so much of the file. Errors: io.ErrUnexpectedEOF for a file that is shorter.
func (t *target) sumOf(ctx context.Context, size int64) (uint32, error) {
	if _, err := t.part.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	sum, buffer := uint32(0), make([]byte, 1<<20)
	for size > 0 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := t.part.Read(buffer[:min(size, int64(len(buffer)))])
		sum, size = crc32.Update(sum, castagnoli, buffer[:n]), size-int64(n)
		if errors.Is(err, io.EOF) {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// end ends a download that has failed: what another run can go on with is left, and all else removed.
func (t *target) end(failed error) error {
	if t.closed {
		return nil
	}
	if t.part == nil || t.last == nil {
		return t.discard()
	}
	name := t.part.Name()
	if errors.Is(failed, export.ErrChanged) {
		t.note("%s, with %d of %d bytes, is removed", name, t.last.Point.Done, t.last.Point.Size)
		return t.discard()
	}
	if !t.resumed { // else all is as the run before has left it
		if err := t.keepNote(); err != nil {
			if t.kept == nil {
				return errors.Join(err, t.discard())
			}
			t.last = t.kept // which still holds: the file has that, and more
		}
	}
	t.closed = true
	t.note("%s has %d of %d bytes; the same command goes on there as long as the disk is the same", name,
		t.last.Point.Done, t.last.Point.Size)
	return t.part.Leave()
}

func (w what) String() string {
	text := w.Namespace + "/" + w.Export
	if w.Volume != "" {
		text += ", volume " + w.Volume
	}
	return text + ", " + w.Format
}
