package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
)

// input is what the user sends; it outlives connections.
type input struct {
	chunks chan []byte
	escape byte
	// ended is that In is at its end, sent that it gave anything.
	ended, sent bool
}

// chunkSize is enough for a paste without making a read of a pipe wait.
const chunkSize = 4 << 10

// read hands out what In gives, and closes chunks at its end.
func (i *input) read(ctx context.Context, in io.Reader) {
	defer close(i.chunks)
	for {
		buf := make([]byte, chunkSize)
		n, err := in.Read(buf)
		if n > 0 {
			select {
			case i.chunks <- buf[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (i *input) end() { i.ended = true }

// forward sends chunk up to an escape, which is errLeft.
func (i *input) forward(chunk []byte, to io.Writer) error {
	var leaving error
	if i.escape != 0 {
		if at := bytes.IndexByte(chunk, i.escape); at >= 0 {
			chunk, leaving = chunk[:at], errLeft
		}
	}
	if len(chunk) > 0 {
		i.sent = true
		if _, err := to.Write(chunk); err != nil {
			return err
		}
	}
	return leaving
}

// output is what the guest writes over one connection.
type output struct {
	out io.Writer
	// active gets a value after something was written, ended the end: nil for the stream's own.
	active chan struct{}
	ended  chan error
}

func (o *output) copy(from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := o.out.Write(buf[:n]); werr != nil {
				o.ended <- writeError{werr}
				return
			}
			select {
			case o.active <- struct{}{}:
			default:
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			o.ended <- nil
			return
		case err != nil:
			o.ended <- err
			return
		}
	}
}
