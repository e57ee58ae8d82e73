package forward

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/waits"
)

const (
	// patience is the default of Forwarder.Patience.
	patience = 30 * time.Second
	// attemptTimeout bounds one attempt to open a connection.
	attemptTimeout = 30 * time.Second
	// retryFirst and retryMost are the ends of the back-off between attempts to reach a guest.
	retryFirst, retryMost = 200 * time.Millisecond, 2 * time.Second
)

// Dialer connects to a port of one guest.
type Dialer func(ctx context.Context, port uint16, protocol string) (*stream.Conn, error)

// To dials ports of one guest through a client.
func To(c Opener, t Target) Dialer {
	return func(ctx context.Context, port uint16, protocol string) (*stream.Conn, error) {
		return Dial(ctx, c, t, port, protocol)
	}
}

// Forwarder serves local ports. Its methods may run at the same time; what happens to one connection touches no other.
type Forwarder struct {
	Dial Dialer
	// Standby opens streams on standby, so that connections after the first are quick; nil opens none. See StandbyTo.
	Standby func(ctx context.Context, port uint16) (*stream.Conn, error)
	// Patience is how long a new connection waits for a guest that restarts, moves, or has not set up its
	// network, and for a cluster that does not answer; 30 s unless set. A port that the guest refuses is not waited
	// for.
	Patience time.Duration
	// Idle is how long nothing may come or go for a UDP client before it is forgotten, 90 s unless set.
	Idle time.Duration
	// Notify, which may be nil, is called with what happens. It may be called by several goroutines at once.
	Notify func(Event)
}

// Kind is the kind of an Event.
type Kind int

const (
	// Opened is a connection that has reached the guest.
	Opened Kind = iota
	// Closed is its end; Err is nil for a normal one.
	Closed
	// Waiting is a connection that could not be made yet and is tried again; Err says why.
	Waiting
	// Failed is a connection that could not be made; Err says why.
	Failed
)

// Event is something that happened to a connection.
type Event struct {
	Kind     Kind
	Protocol string
	// Local is the local end, and Client who connected to it.
	Local, Client string
	// Port is the guest's.
	Port uint16
	Err  error
}

func (f *Forwarder) notify(e Event) {
	if f.Notify != nil {
		f.Notify(e)
	}
}

// connect dials until it succeeds, fails for good, or patience ends.
func (f *Forwarder) connect(ctx context.Context, e Event) (*stream.Conn, error) {
	limit := f.Patience
	if limit == 0 {
		limit = patience
	}
	longer := waits.Doubling(retryFirst, retryMost)
	started, pause := time.Now(), longer()
	for {
		conn, err := f.attempt(ctx, e)
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !passing(err), time.Since(started)+pause > limit:
			return nil, err
		}
		if e.Kind != Waiting {
			e.Kind, e.Err = Waiting, err
			f.notify(e)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
		pause = longer()
	}
}

func (f *Forwarder) attempt(ctx context.Context, e Event) (*stream.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return f.Dial(ctx, e.Port, e.Protocol)
}

// passing reports whether err may go away by itself: a guest that does not run now, one whose network is
// not up, a component or a cluster that does not answer.
func passing(err error) bool {
	var status apierrors.APIStatus
	switch {
	case Refused(err):
		return false
	case !errors.As(err, &status), Unreachable(err), stream.NotYet(err):
		return true
	}
	return status.Status().Code >= 500 || apierrors.IsTooManyRequests(err)
}
