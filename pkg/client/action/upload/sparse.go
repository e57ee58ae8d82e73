package upload

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sort"
	"sync"
)

const (
	// part is the piece of an image that is one member of the gzip stream, bytes.
	part = 4 << 20
	// block is the most that a stored block of deflate has, bytes.
	block = 1<<16 - 1
	// worthwhile is how much of an image must be holes for it to be sent without them, bytes.
	worthwhile = 4 * part
)

// WithoutHoles returns a raw image as the gzip stream that is sent of it: what has data as it is, uncompressed, and a
// hole of 4 MiB in 4 KiB. Each byte of the stream has its place from the beginning and is made when it is read, so that
// an upload goes on as that of a file does. An image with few holes is returned as it is.
func (i Image) WithoutHoles(file *os.File) (Image, error) {
	s := &sparse{of: i}
	kept, err := dataOf(file, i.Size)
	if err != nil {
		return i, fmt.Errorf("look for the image's holes: %w", err)
	}
	zeros := int64(0)
	for at, next := int64(0), 0; at < i.Size; at += part {
		for next < len(kept) && kept[next].end <= at {
			next++
		}
		size := min(part, i.Size-at)
		hole := size == part && (next == len(kept) || kept[next].begin >= at+part)
		if hole {
			zeros += part
		}
		s.holes = append(s.holes, hole)
	}
	if zeros < worthwhile {
		return i, nil
	}
	if s.hole, err = packedZeros(); err != nil {
		return i, err
	}
	s.begins = make([]int64, len(s.holes)+1)
	for n, hole := range s.holes {
		length := int64(len(s.hole))
		if !hole {
			length = storedLength(min(part, i.Size-int64(n)*part))
		}
		s.begins[n+1] = s.begins[n] + length
	}
	return Image{ReaderAt: s, Size: s.begins[len(s.holes)], Format: i.Format}, nil
}

// extent is a stretch of a file, bytes.
type extent struct{ begin, end int64 }

// sparse is the stream of an image.
type sparse struct {
	of Image
	// holes are the parts that are holes, begins where the member of each begins in the stream, and where the last
	// ends.
	holes  []bool
	begins []int64
	hole   []byte

	mu sync.Mutex
	// member is the one that was made last, of part number made - 1.
	member []byte
	made   int
}

// ReadAt implements io.ReaderAt.
func (s *sparse) ReadAt(p []byte, at int64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(p) {
		number := sort.Search(len(s.holes), func(i int) bool { return s.begins[i+1] > at })
		if number == len(s.holes) {
			return n, io.EOF
		}
		member := s.hole
		if !s.holes[number] {
			if member, err = s.stored(number); err != nil {
				return n, err
			}
		}
		copied := copy(p[n:], member[at-s.begins[number]:])
		n, at = n+copied, at+int64(copied)
	}
	return n, nil
}

// stored returns the member of a part with data.
func (s *sparse) stored(number int) ([]byte, error) {
	if s.made == number+1 {
		return s.member, nil
	}
	s.made = 0
	begin := int64(number) * part
	data := make([]byte, min(part, s.of.Size-begin))
	if n, err := s.of.ReadAt(data, begin); n < len(data) {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	out := append(s.member[:0], gzipHeader...)
	for rest := data; len(rest) > 0; {
		piece := rest[:min(block, len(rest))]
		rest = rest[len(piece):]
		last := byte(0)
		if len(rest) == 0 {
			last = 1
		}
		out = append(out, last)
		out = binary.LittleEndian.AppendUint16(out, uint16(len(piece)))
		out = binary.LittleEndian.AppendUint16(out, ^uint16(len(piece)))
		out = append(out, piece...)
	}
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(data))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(data)))
	s.member, s.made = out, number+1
	return out, nil
}

// gzipHeader begins a member without a name or a time (RFC 1952).
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// storedLength returns the length of a member that has so much data.
func storedLength(data int64) int64 {
	const head, trailer, ofBlock = 10, 8, 5
	return head + (data+block-1)/block*ofBlock + data + trailer
}

// packedZeros returns a part of zeros, compressed.
var packedZeros = sync.OnceValues(func() ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(make([]byte, part)); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
})
