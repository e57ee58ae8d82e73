package component

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Task is a component that runs as a goroutine of this process. It may run once.
type Task struct {
	// Label is its name.
	Label string
	// Run works until ctx is done.
	Run func(ctx context.Context) error
	// Check, when set, reports whether it is ready; it is asked every few milliseconds.
	Check func(ctx context.Context) error
	// Failed gets the error when Run returns without having been stopped.
	Failed func(error)

	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Name returns the label.
func (t *Task) Name() string { return t.Label }

// Init does nothing.
func (*Task) Init(context.Context) error { return nil }

// Start begins the goroutine. It is ended by Stop, not with ctx.
func (t *Task) Start(ctx context.Context) error {
	ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.done = make(chan struct{})
	go func() {
		defer close(t.done)
		t.err = t.Run(ctx)
		if ctx.Err() != nil {
			t.err = nil // asked to end: what it says then is no failure
			return
		}
		if t.err == nil {
			t.err = errors.New("ended by itself")
		}
		t.err = fmt.Errorf("%s: %w", t.Label, t.err)
		if t.Failed != nil {
			t.Failed(t.err)
		}
	}()
	return nil
}

// Ready waits until Check has nothing to say against it, or Run has failed.
func (t *Task) Ready(ctx context.Context) error {
	if t.Check == nil {
		return nil
	}
	return Poll(ctx, 20*time.Millisecond, func(ctx context.Context) error {
		select {
		case <-t.done:
			return Permanent(t.err)
		default:
			return t.Check(ctx)
		}
	})
}

// Stop ends the goroutine and waits for it.
func (t *Task) Stop(ctx context.Context) error {
	if t.cancel == nil {
		return nil
	}
	t.cancel()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("it does not end: %w", ctx.Err())
	}
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error that no waiting fixes; Poll returns it at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// Poll asks check every interval until it returns nil or a Permanent error. When ctx ends first, the error
// says what check said last.
func Poll(ctx context.Context, interval time.Duration, check func(context.Context) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if permanent := (permanentError{}); errors.As(err, &permanent) {
			return permanent.error
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			if last == nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w (last: %w)", ctx.Err(), last)
		case <-ticker.C:
		}
	}
}
