package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// FileError is what is wrong about a file of the guest: it is not there, say. Others may well be copied.
type FileError struct{ Message string }

func (e *FileError) Error() string { return e.Message }

// LocalError is what is wrong about the file of this machine: it cannot be read or written.
type LocalError struct{ Err error }

func (e *LocalError) Error() string { return e.Err.Error() }
func (e *LocalError) Unwrap() error { return e.Err }

// Opener opens the stream of a copy.
type Opener func(context.Context) (*stream.Conn, error)

// Push is a file to copy to a guest.
type Push struct {
	// Source is its content.
	Source io.Reader
	// Path is the file in the guest; if a directory is there, Name is made in it, unless it is empty. IntoDirectory
	// says that one has to be there.
	Path, Name    string
	IntoDirectory bool
	// Mode is its permission bits; nil is those of the file that is there, or else 0644.
	Mode *uint32
	// Written, which may be nil, is called with how many bytes the guest has taken.
	Written func(bytes int64)
}

// Pull is a file to copy from a guest.
type Pull struct {
	// Path is the file in the guest.
	Path string
	// To takes its content. Without it File does, a file of this machine, which has all of it afterwards or is as it
	// was.
	To   io.Writer
	File string
	// Opened is called with what the guest says of the file, and Read with how many bytes have come; both may be nil.
	Opened func(copyfile.Opened)
	Read   func(bytes int64)
}

// Copied is a copy that has gone well.
type Copied struct {
	// Path is the file in the guest.
	Path string
	copyfile.Result
}

// Run copies the file. When ctx ends, or the connection does, the guest keeps what it had under that name, unless it
// has no shell. Errors: *FileError, *LocalError, API errors, action.ErrLost, *stream.CloseError.
func (p Push) Run(ctx context.Context, open Opener) (Copied, error) {
	request := copyfile.Request{
		Direction: copyfile.Push, Path: p.Path, Name: p.Name, IntoDirectory: p.IntoDirectory, Mode: p.Mode,
	}
	conn, err := begin(ctx, open, request)
	if err != nil {
		return Copied{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // that it is closed is all that matters
	sent, failed := make(chan pushed, 1), make(chan error, 1)
	way := newWindow()
	defer way.end()
	// Nobody can interrupt a reader of the user's: when the stream ends first, it is left to the process's end.
	go func() {
		if err := sendFile(conn, p.Source, way, sent); err != nil {
			failed <- err
			_ = conn.Close() // the guest must not take half of the file for the whole
		}
	}()
	copied, err := receiveFile(conn, func(channel exec.Channel, payload []byte) error {
		return p.written(way, channel, payload)
	})
	if err != nil {
		select {
		case why := <-failed:
			var reading *readError
			if errors.As(why, &reading) && ctx.Err() == nil {
				return Copied{}, &LocalError{reading.error}
			}
		default:
		}
		return Copied{}, copyBecause(ctx, err)
	}
	select {
	case own := <-sent:
		return copied, copied.compare(own)
	default:
		return Copied{}, fmt.Errorf("%s: the server says that it is copied before all of it was sent", p.Path)
	}
}

func (p Push) written(way *window, channel exec.Channel, payload []byte) error {
	if channel != copyfile.ChannelWritten {
		return nil
	}
	var written copyfile.Written
	if err := json.Unmarshal(payload, &written); err != nil {
		return fmt.Errorf("read how far the copy is: %w", err)
	}
	way.taken(written.Bytes)
	if p.Written != nil {
		p.Written(written.Bytes)
	}
	return nil
}

// Run copies the file. Errors are those of Push.Run.
func (p Pull) Run(ctx context.Context, open Opener) (Copied, error) {
	conn, err := begin(ctx, open, copyfile.Request{Direction: copyfile.Pull, Path: p.Path})
	if err != nil {
		return Copied{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // that it is closed is all that matters
	r := receiver{pull: p, to: p.To, sum: sha256.New()}
	copied, err := receiveFile(conn, r.take)
	switch {
	case r.local != nil && ctx.Err() == nil:
		err = &LocalError{r.local}
	case err != nil:
		err = copyBecause(ctx, err)
	case !r.opened:
		err = errors.New("the server says that a file is copied which it has not sent")
	default:
		r.own.sum = hex.EncodeToString(r.sum.Sum(nil))
		err = copied.compare(r.own)
	}
	return copied, r.end(err)
}

// receiver takes what comes of a file.
type receiver struct {
	pull   Pull
	opened bool
	to     io.Writer
	file   *localFile
	own    pushed
	sum    hash.Hash
	// local is what is wrong here.
	local error
}

func (r *receiver) take(channel exec.Channel, payload []byte) error {
	switch {
	case channel == copyfile.ChannelOpened && !r.opened:
		return r.open(payload)
	case channel == copyfile.ChannelData && !r.opened:
		return errors.New("the server sends a file before it says what it is")
	case channel == copyfile.ChannelData:
		r.sum.Write(payload)
		r.own.bytes += int64(len(payload))
		if _, r.local = r.to.Write(payload); r.local == nil && r.pull.Read != nil {
			r.pull.Read(r.own.bytes)
		}
		return r.local
	}
	return nil
}

func (r *receiver) open(payload []byte) error {
	var opened copyfile.Opened
	if err := json.Unmarshal(payload, &opened); err != nil {
		return fmt.Errorf("read what is to be copied: %w", err)
	}
	r.opened = true
	if r.to == nil {
		if r.file, r.local = createLocal(r.pull.File, opened.Mode); r.local != nil {
			return r.local
		}
		r.to = r.file
	}
	if r.pull.Opened != nil {
		r.pull.Opened(opened)
	}
	return nil
}

// end keeps or drops the file that was written here.
func (r *receiver) end(err error) error {
	switch {
	case r.file == nil:
		return err
	case err != nil:
		r.file.drop()
		return err
	}
	if err := r.file.keep(); err != nil {
		return &LocalError{err}
	}
	return nil
}

// begin opens the stream and sends the request.
func begin(ctx context.Context, open Opener, request copyfile.Request) (*stream.Conn, error) {
	conn, err := open(ctx)
	if err != nil {
		return nil, err
	}
	if err := exec.WriteJSON(conn, copyfile.ChannelRequest, request); err != nil {
		_ = conn.Close() // the error says more
		return nil, copyBecause(ctx, err)
	}
	return conn, nil
}

// pushed is what has gone through our hands.
type pushed struct {
	bytes int64
	sum   string
}

// readError is about the user's own file.
type readError struct{ error }

// sendFile sends the content and its end. What it was is known before the end is sent.
func sendFile(w io.Writer, source io.Reader, way *window, sent chan<- pushed) error {
	own, sum, buf := pushed{}, sha256.New(), make([]byte, exec.MaxFrame)
	for {
		n, err := source.Read(buf)
		if n > 0 {
			sum.Write(buf[:n])
			own.bytes += int64(n)
			if !way.enter(own.bytes) {
				return net.ErrClosed
			}
			if err := exec.WriteFrame(w, copyfile.ChannelData, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			own.sum = hex.EncodeToString(sum.Sum(nil))
			sent <- own
			return exec.WriteFrame(w, copyfile.ChannelData, nil)
		case err != nil:
			return &readError{err}
		}
	}
}

// receiveFile gives take what comes before the result.
func receiveFile(r io.Reader, take func(exec.Channel, []byte) error) (Copied, error) {
	var copied Copied
	begun := false
	for {
		channel, payload, err := exec.ReadFrame(r)
		switch {
		case errors.Is(err, io.EOF):
			return copied, fmt.Errorf("%w before the file was copied: the server closed it", action.ErrLost)
		case err != nil:
			return copied, err
		case channel == copyfile.ChannelResult:
			return copied, copied.end(payload, begun)
		case channel == copyfile.ChannelOpened:
			var opened copyfile.Opened
			if err := json.Unmarshal(payload, &opened); err != nil {
				return copied, fmt.Errorf("read what is to be copied: %w", err)
			}
			copied.Path, begun = opened.Path, true
		}
		if err := take(channel, payload); err != nil {
			return copied, err
		}
	}
}

// end reads the result. What fails a copy that has begun, and is not about the file, is that its guest has gone.
func (c *Copied) end(payload []byte, begun bool) error {
	if err := json.Unmarshal(payload, &c.Result); err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	failure := c.Failure
	if failure == nil {
		return nil
	}
	switch failure.Reason {
	case copyfile.ReasonNoFile, copyfile.ReasonDenied, copyfile.ReasonFull, copyfile.ReasonRefused:
		return &FileError{failure.Message}
	}
	if begun {
		return fmt.Errorf("%w before the file was copied: %s", action.ErrLost, failure.Message)
	}
	return &apierrors.StatusError{ErrStatus: *failure}
}

// compare holds what the server says against what went through our hands.
func (c *Copied) compare(own pushed) error {
	switch {
	case c.Bytes != own.bytes:
		return &FileError{fmt.Sprintf("%s: %d bytes went out or came in here, but the server has counted %d; "+
			"copy it again", c.Path, own.bytes, c.Bytes)}
	case c.SHA256 != own.sum:
		return &FileError{c.Path + ": it has another checksum at the guest than here; copy it again"}
	}
	return nil
}

// copyBecause returns the reason for which a stream broke: ctx's end, if that was it.
func copyBecause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var closed *stream.CloseError
	if errors.As(err, &closed) && (closed.Code == stream.CodeGoingAway || closed.Code == stream.CodeAbnormal) {
		return fmt.Errorf("%w before the file was copied: %w", action.ErrLost, err)
	}
	return err
}
