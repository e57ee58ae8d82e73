package export

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

const (
	// maxMember is the most of a disk that one member of a gzip stream may have, bytes: a server of virtkit puts 4 MiB
	// into one. maxPacked is the most that it may take.
	maxMember = 16 << 20
	maxPacked = maxMember + maxMember/8
)

var errMember = errors.New("the server sends what no export is")

// members reads a gzip stream member by member, so that a download that was cut goes on after the last whole one. Each
// has a checksum, which is verified.
type members struct {
	in *recorder
	gz *gzip.Reader
}

// recorder keeps what the decompression has taken.
type recorder struct {
	*bufio.Reader
	taken bytes.Buffer
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.taken.Write(p[:n])
	return n, r.bounded(err)
}

// ReadByte keeps the decompressor from reading ahead: it takes no byte more than it needs.
func (r *recorder) ReadByte() (byte, error) {
	b, err := r.Reader.ReadByte()
	if err == nil {
		r.taken.WriteByte(b)
	}
	return b, r.bounded(err)
}

func (r *recorder) bounded(err error) error {
	if err == nil && r.taken.Len() > maxPacked {
		return errMember
	}
	return err
}

func newMembers(in io.Reader) *members {
	return &members{in: &recorder{Reader: bufio.NewReaderSize(in, 64<<10)}}
}

// next returns the next member, packed and unpacked, until the next call; io.EOF is the stream's end between two. The
// end within one is io.ErrUnexpectedEOF.
func (m *members) next(raw *bytes.Buffer) (packed []byte, err error) {
	m.in.taken.Reset()
	raw.Reset()
	if m.gz == nil {
		m.gz, err = gzip.NewReader(m.in)
	} else {
		err = m.gz.Reset(m.in)
	}
	switch {
	case errors.Is(err, io.EOF) && m.in.taken.Len() == 0:
		return nil, io.EOF
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, fmt.Errorf("read the compressed disk: %w", err)
	}
	m.gz.Multistream(false)
	if _, err := io.CopyN(raw, m.gz, maxMember+1); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errMember
		}
		return nil, fmt.Errorf("read the compressed disk: %w", err)
	}
	return m.in.taken.Bytes(), nil
}
