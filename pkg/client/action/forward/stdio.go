package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/virtkit/virtkit/pkg/stream"
)

// Stdio joins a connection to a program's standard streams. Each direction ends by itself: the end of in ends ours, and
// what the guest still sends arrives; at the guest's end ended is called, and what in still gives arrives, unless
// ended returns false because nobody waits for it. It returns nil when both have ended normally, and io.ErrClosedPipe
// when nobody reads out. A Read of in may outlive it.
func Stdio(
	ctx context.Context, conn *stream.Conn, protocol string, in io.Reader, out io.Writer, ended func() bool,
) error {
	var remote halfCloser = conn
	if protocol == UDP {
		remote = stream.Packets{Conn: conn}
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	sent := make(chan struct{})
	// It ends with the process at the latest: a Read of standard input cannot be interrupted everywhere.
	go func() {
		defer close(sent)
		send(remote, in)
	}()
	err := receive(out, remote)
	if err == nil && protocol != UDP && ended() {
		select {
		case <-sent:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// send copies until in ends or remote takes no more; why is seen by who reads from it.
func send(remote halfCloser, in io.Reader) {
	buf := make([]byte, stream.BufferSize)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, err := remote.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = remote.CloseWrite()
			return
		}
	}
}

func receive(out io.Writer, remote io.Reader) error {
	buf := make([]byte, stream.BufferSize)
	for {
		n, err := remote.Read(buf)
		if n > 0 {
			if _, err := out.Write(buf[:n]); errors.Is(err, syscall.EPIPE) {
				return io.ErrClosedPipe
			} else if err != nil {
				return fmt.Errorf("write what the guest sends: %w", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
