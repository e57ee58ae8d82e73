package stream

import (
	"context"
	"errors"
	"io"
	"testing"
)

// end is one side of a splice by hand: its reads wait for answer, and it keeps in order how it was closed.
type end struct {
	answer chan struct{}
	closed chan error // nil for CloseWrite
	reply  bool       // its peer answers a close with a normal end
	hold   chan struct{}
}

func newEnd() *end {
	e := &end{answer: make(chan struct{}), closed: make(chan error, 8), hold: make(chan struct{})}
	close(e.hold)
	return e
}

func (e *end) Read([]byte) (int, error)    { <-e.answer; return 0, io.EOF }
func (e *end) Write(p []byte) (int, error) { return len(p), nil }
func (e *end) CloseWrite() error           { e.closed <- nil; return nil }
func (e *end) Close() error                { return nil }

func (e *end) CloseWithReason(code int, reason string) error {
	if e.reply {
		close(e.answer)
		e.reply = false
	}
	<-e.hold
	e.closed <- &CloseError{Code: code, Reason: reason}
	return nil
}

// The peer behind one side answers its close frame before the other side has been told the reason. That answer must
// not reach the other side first, as a normal end.
func TestSpliceReasonIsNotOvertaken(t *testing.T) {
	client, backend := newEnd(), newEnd()
	backend.reply = true
	client.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Splice(ctx, client, backend) }()
	cancel()
	<-backend.answer // the relay towards the client ends now
	close(client.hold)
	close(client.answer)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("splice returned %v", err)
	}
	var closed *CloseError
	if first := <-client.closed; !errors.As(first, &closed) || closed.Code != CodeGoingAway {
		t.Errorf("the client was first told %v, not that the server is going away", first)
	}
}
