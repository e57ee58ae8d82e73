package streams

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sync/semaphore"
)

// logText sends a log, which may grow and be cut meanwhile, piece by piece: however long the log is, and however slow
// its client, no more than chunk bytes of it are held, and none while there is nothing to send.
type logText struct {
	of     *os.File
	offset int64
	// last holds the bytes right before offset, up to overlap, to find the place again in a log that was cut.
	last []byte
	// flush, if not nil, is called after each piece.
	flush func() error

	room   *semaphore.Weighted
	share  held
	buffer *[chunk]byte // nil while nothing is held
}

// chunks are buffers that nobody uses.
var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// hold takes a buffer, and room for it; it reports whether there was any.
func (t *logText) hold() bool {
	t.share.of = t.room
	if !t.share.take(chunk) {
		return false
	}
	t.buffer, _ = chunks.Get().(*[chunk]byte)
	return true
}

// letGo gives back what hold took.
func (t *logText) letGo() {
	if t.buffer != nil {
		chunks.Put(t.buffer)
		t.share.free()
		t.buffer = nil
	}
}

// readAt reads up to n bytes, and fewer where the log ends.
func (t *logText) readAt(offset, n int64) ([]byte, error) {
	got, err := t.of.ReadAt(t.buffer[:min(n, chunk)], offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return t.buffer[:got], err
}

// seek makes offset the next byte to be sent.
func (t *logText) seek(offset int64) error {
	before, err := t.readAt(max(0, offset-overlap), min(offset, overlap))
	t.offset, t.last = offset, bytes.Clone(before)
	return err
}

// added reports whether the log differs from what was sent.
func (t *logText) added() (bool, error) {
	info, err := t.of.Stat()
	if err != nil {
		return false, err
	}
	return info.Size() != t.offset, nil
}

// send sends what the log has, up to limit bytes.
func (t *logText) send(w io.Writer, limit int64) error {
	for limit > 0 {
		info, err := t.of.Stat()
		if err != nil {
			return err
		}
		if info.Size() < t.offset {
			if err := t.find(info.Size()); err != nil {
				return err
			}
		}
		piece, err := t.readAt(t.offset, limit)
		if err != nil || len(piece) == 0 {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		if t.flush != nil {
			if err := t.flush(); err != nil {
				return err
			}
		}
		t.offset += int64(len(piece))
		limit -= int64(len(piece))
		t.last = append(t.last, piece[max(0, len(piece)-overlap):]...)
		t.last = append(t.last[:0], t.last[max(0, len(t.last)-overlap):]...)
	}
	return nil
}

// find sets offset to the place in a log that was cut to a size where it was before, or to its end.
func (t *logText) find(size int64) error {
	t.offset = size
	if len(t.last) == 0 {
		return nil
	}
	at, found, err := t.lastIndex(max(0, size-maxLog), size, t.last)
	if found {
		t.offset = at + int64(len(t.last))
	}
	return err
}

// lastIndex finds where text, of up to overlap bytes, is in the log for the last time between two offsets.
func (t *logText) lastIndex(from, to int64, text []byte) (int64, bool, error) {
	for end := to; end > from; {
		begin := max(from, end-chunk)
		piece, err := t.readAt(begin, end-begin)
		if err != nil {
			return 0, false, err
		}
		if at := bytes.LastIndex(piece, text); at >= 0 {
			return begin + int64(at), true, nil
		}
		if begin == from {
			break
		}
		end = begin + int64(len(text)) - 1 // text may lie across
	}
	return 0, false, nil
}

// lastLines finds where the last n lines before an offset begin, but not before from; a line that is not complete
// counts.
func (t *logText) lastLines(from, to int64, n int) (int64, error) {
	if n == 0 {
		return to, nil
	}
	for end := to; end > from; {
		begin := max(from, end-chunk)
		piece, err := t.readAt(begin, end-begin)
		if err != nil {
			return 0, err
		}
		if end == to {
			piece = bytes.TrimSuffix(piece, []byte("\n"))
		}
		for at := len(piece); ; n-- {
			if at = bytes.LastIndexByte(piece[:at], '\n'); at < 0 {
				break
			}
			if n == 1 {
				return begin + int64(at) + 1, nil
			}
		}
		end = begin
	}
	return from, nil
}
