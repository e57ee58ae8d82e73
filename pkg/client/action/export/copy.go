package export

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"

	"kubevirt.io/api/export/v1beta1"
)

// block is how many zeros become a hole, bytes.
const block = 64 << 10

var zeros [block]byte

// writeSparse writes data, and skips zeros.
func writeSparse(out Output, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), block)
		var err error
		if bytes.Equal(data[:n], zeros[:n]) {
			err = out.Skip(int64(n))
		} else {
			_, err = out.Write(data[:n])
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// copy writes what a server sends that says no size: an archive, or the disk of another server than virtkit's.
func (f *fetch) copy(r *http.Response) error {
	f.done = 0
	total := r.ContentLength
	in := io.Reader(&counter{of: f, in: r.Body, total: total})
	if f.Raw && f.format != v1beta1.KubeVirtRaw {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("read what is compressed: %w", err)
		}
		in = unpacked
	}
	buffer := make([]byte, block)
	for {
		n, err := io.ReadFull(in, buffer)
		if n > 0 {
			write := writeSparse
			if !f.Raw {
				write = func(out Output, data []byte) error { _, err := out.Write(data); return err }
			}
			if err := write(f.out, buffer[:n]); err != nil {
				return final{err}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF) && n > 0:
			// The last part, unless it was cut: the next read says.
		case err != nil:
			return err
		}
	}
}

// counter counts what has come.
type counter struct {
	of    *fetch
	in    io.Reader
	total int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.of.done += int64(n)
	c.of.Show(c.of.done, c.total)
	return n, err
}
