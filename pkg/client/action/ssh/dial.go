package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/stream"
)

// pause is the time between two tries.
const pause = 500 * time.Millisecond

// Dial reaches a guest's port. A guest that does not run yet, or does not listen yet, is tried again for as long as
// patience; 0 is once. waiting is called when there is something to wait for.
func Dial(
	ctx context.Context, o forward.Opener, t forward.Target, port uint16, patience time.Duration,
	waiting func(why error),
) (net.Conn, error) {
	bounded := ctx
	if patience > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	var last error
	for {
		conn, err := forward.Dial(bounded, o, t, port, forward.TCP)
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case patience > 0 && over(bounded):
			if last == nil {
				last = err
			}
			// A server that was reached has waited for the guest: it is not the cluster that does not answer.
			if timedOut(last) {
				last = fmt.Errorf("%s does not answer on port %d; is its network up?", t, port)
			}
			return nil, fmt.Errorf("%w after %s: %w", action.ErrTimeout, patience, last)
		case patience == 0 || !passing(err):
			return nil, err
		}
		last = err
		waiting(err)
		timer := time.NewTimer(pause)
		select {
		case <-bounded.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// over reports whether ctx has ended, or its deadline is reached: a connection meets that a moment before ctx does, and
// such an error says nothing of the cluster.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// timedOut reports whether err is of a server that was reached and did not answer in time.
func timedOut(err error) bool {
	var late net.Error
	var dial *net.OpError
	return (errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout()) &&
		(!errors.As(err, &dial) || dial.Op != "dial")
}

// passing reports whether err may pass by itself.
func passing(err error) bool {
	return forward.Refused(err) || forward.Unreachable(err) || stream.NotYet(err) ||
		client.Passing(err) || errors.Is(err, context.DeadlineExceeded)
}

// HostName returns the name of a guest in the file of host keys, as in KubeVirt: vm.NAME.NAMESPACE, or
// vmi.NAME.NAMESPACE for who asked for the instance.
func HostName(t forward.Target) string {
	kind := "vm."
	if t.Instance {
		kind = "vmi."
	}
	return kind + t.Name + "." + t.Namespace
}
