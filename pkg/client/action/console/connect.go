package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// ErrStopped is a VM that does not run and that nobody has asked to.
var ErrStopped = errors.New("it is stopped")

// pause is the time between two tries.
const pause = 500 * time.Millisecond

// connect opens a console with dial, waiting for the guest to run for as long as ctx lasts. A VM that is stopped is
// an ErrStopped, unless again says that a session is to be taken up once more: then it is waited for, as is a
// component of virtkit that does not answer. waiting is called when there is something to wait for, and blocked with
// what keeps a VM from starting, each time that this is something else.
func connect(
	ctx context.Context, api wait.API, dial func(context.Context) (io.ReadWriteCloser, error), namespace, name string,
	again bool, waiting func(), blocked func(string),
) (io.ReadWriteCloser, error) {
	said := ""
	block := func(why string) {
		if why != said && blocked != nil {
			blocked(why)
		}
		said = why
	}
	for {
		conn, err := dial(ctx)
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(ctx.Err(), context.Canceled):
			return nil, ctx.Err()
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w connecting to the console of %s/%s: %w", action.ErrTimeout, namespace, name, err)
		case apierrors.IsNotFound(err), stream.NotYet(err):
			waiting()
			if _, err := wait.Until(ctx, api, namespace, name, runningOrStopped(again, block)); err != nil {
				return nil, err
			}
		case again && client.Passing(err):
			waiting()
		default:
			return nil, fmt.Errorf("console of %s/%s: %w", namespace, name, err)
		}
		// Running comes a moment before the console does.
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

func runningOrStopped(again bool, blocked func(string)) wait.Condition {
	condition := wait.Running()
	running, stopped := condition.Met, wait.Stopped().Met
	condition.Met = func(s wait.State) (bool, error) {
		if !again {
			if is, err := stopped(s); is || err != nil {
				return false, errors.Join(err, fmt.Errorf("VM %s: %w", nameOf(s), ErrStopped))
			}
		}
		if s.VM != nil && slices.Contains(life.CannotStart(), s.VM.Status.PrintableStatus) {
			blocked(wait.Describe(s))
		}
		return running(s)
	}
	return condition
}

func nameOf(s wait.State) string {
	if s.VM != nil {
		return s.VM.Namespace + "/" + s.VM.Name
	}
	return s.VMI.Namespace + "/" + s.VMI.Name
}
