package clienttest

import (
	"context"
	"sync"
)

// late is a context that ends as one whose deadline is reached, when a test says so.
type late struct {
	context.Context
	done chan struct{}
}

// Late returns a context that ends with context.DeadlineExceeded once end is called: on a slow machine a deadline of a
// short time may be reached before there is what is to be there at it.
func Late() (ctx context.Context, end func()) {
	l := late{context.Background(), make(chan struct{})}
	return l, sync.OnceFunc(func() { close(l.done) })
}

// Done implements context.Context.
func (l late) Done() <-chan struct{} { return l.done }

// Err implements context.Context.
func (l late) Err() error {
	select {
	case <-l.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
