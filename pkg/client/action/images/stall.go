package images

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// patience is how long a server may send nothing before a download ends.
const patience = time.Minute

// StalledError is a server that has sent nothing for a while.
type StalledError struct{ For time.Duration }

func (e *StalledError) Error() string {
	return "the server has sent nothing for " + duration.HumanDuration(e.For) +
		"; what has come is kept, and the download goes on from there when the command is repeated"
}

// Unwrap says that the command has waited too long.
func (e *StalledError) Unwrap() error { return action.ErrTimeout }

// stall ends a request when its server sends nothing.
type stall struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
}

// newStall begins to wait for the answer to a request, which is made with its context.
func newStall(ctx context.Context) *stall {
	s := &stall{}
	s.ctx, s.end = context.WithCancelCause(ctx)
	s.timer = time.AfterFunc(patience, func() { s.end(&StalledError{patience}) })
	return s
}

// why returns the error that ended the request: a StalledError, or err.
func (s *stall) why(err error) error {
	var stalled *StalledError
	if err != nil && errors.As(context.Cause(s.ctx), &stalled) {
		return stalled
	}
	return err
}

// stop ends all that the request has.
func (s *stall) stop() {
	s.timer.Stop()
	s.end(nil)
}

// body is the body of an answer, each read of which may stall.
type body struct {
	io.ReadCloser
	*stall
	host string
}

// Read waits for some bytes. The time between two reads is the caller's own, and does not count.
func (b *body) Read(into []byte) (int, error) {
	b.timer.Reset(patience)
	n, err := b.ReadCloser.Read(into)
	b.timer.Stop()
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, &action.HostError{Host: b.host, Err: b.why(err)}
}

func (b *body) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}
