// Package guest does things inside a guest through its agent: it runs programs there. It knows no terminal.
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// ErrNoProgram means that the guest has no program of that name.
var ErrNoProgram = errors.New("no such program in the guest")

// Program is something to run in a guest.
type Program struct {
	// Command is the program and its arguments. No shell sees it.
	Command []string
	// Stdin is what it reads, nil for nothing. All of it is read before the program starts, and it is
	// bounded: the guest agent takes it in one piece of 2 MiB at most.
	Stdin io.Reader
	// Stdout and Stderr take what it writes, which comes when the program has ended.
	Stdout, Stderr io.Writer
}

// Run runs it over a stream to the guest, which open opens, and gives how it ended. When ctx ends, the program is
// ended too. Errors: ErrNoProgram, API errors, action.ErrLost, *stream.CloseError.
func Run(ctx context.Context, open func(context.Context) (*stream.Conn, error), p Program) (exec.Result, error) {
	conn, err := open(ctx)
	if err != nil {
		return exec.Result{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // that it is closed is all that matters
	if err := exec.WriteJSON(conn, exec.ChannelRequest, exec.Request{Command: p.Command, Stdin: p.Stdin != nil}); err !=
		nil {
		return exec.Result{}, because(ctx, err)
	}
	var sent chan error
	if p.Stdin != nil {
		sent = make(chan error, 1)
		// Nobody can interrupt a reader of the user's: when the stream ends first, it is left to the process's end.
		go func() {
			err := send(conn, p.Stdin)
			sent <- err
			if err != nil {
				_ = conn.Close() // the program must not run with half of its input
			}
		}()
	}
	result, err := receive(conn, p)
	if err != nil && ctx.Err() == nil {
		select {
		case sendErr := <-sent:
			if sendErr != nil {
				err = fmt.Errorf("standard input: %w", sendErr)
			}
		default:
		}
	}
	return finish(ctx, result, err)
}

// send passes the input on, and its end.
func send(w io.Writer, r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := exec.WriteFrame(w, exec.ChannelStdin, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return exec.WriteFrame(w, exec.ChannelStdin, nil)
		case err != nil:
			return err
		}
	}
}

// receive passes the outputs on until the result.
func receive(r io.Reader, p Program) (exec.Result, error) {
	for {
		channel, payload, err := exec.ReadFrame(r)
		switch {
		case errors.Is(err, io.EOF):
			return exec.Result{}, fmt.Errorf("%w before the command ended: the server closed it", action.ErrLost)
		case err != nil:
			return exec.Result{}, err
		}
		switch channel {
		case exec.ChannelStdout:
			_, err = p.Stdout.Write(payload)
		case exec.ChannelStderr:
			_, err = p.Stderr.Write(payload)
		case exec.ChannelResult:
			var result exec.Result
			if err := json.Unmarshal(payload, &result); err != nil {
				return result, fmt.Errorf("read the result: %w", err)
			}
			return result, nil
		}
		if err != nil {
			return exec.Result{}, err
		}
	}
}

func finish(ctx context.Context, result exec.Result, err error) (exec.Result, error) {
	switch failure := result.Failure; {
	case err != nil:
		return exec.Result{}, because(ctx, err)
	case failure == nil:
		return result, nil
	case failure.Reason == exec.ReasonNoProgram:
		return exec.Result{}, fmt.Errorf("%w: %s", ErrNoProgram, failure.Message)
	case failure.Reason == exec.ReasonLost:
		return exec.Result{}, fmt.Errorf("%w before the command ended: %s", action.ErrLost, failure.Message)
	default:
		return exec.Result{}, &apierrors.StatusError{ErrStatus: *failure}
	}
}

// because returns the reason for which a stream broke: ctx's end, if that was it.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var closed *stream.CloseError
	if !errors.As(err, &closed) {
		return err
	}
	switch closed.Code {
	case stream.CodeGoingAway:
		return fmt.Errorf("%w before the command ended: %w", action.ErrLost, err)
	case stream.CodeAbnormal:
		return fmt.Errorf("%w before the command ended (%w); virt-handler ends the command, unless it has failed "+
			"itself: look into the guest before you run it again", action.ErrLost, err)
	}
	return err
}
