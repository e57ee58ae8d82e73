package handler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestWhileSame(t *testing.T) {
	var value atomic.Int64
	value.Store(1000)
	changed, runs, broken := make(chan struct{}), make(chan int), errors.New("broken")
	fail := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- whileSame(t.Context(), changed, func() int { return int(value.Load()) },
			func(ctx context.Context, n int) error {
				runs <- n
				select {
				case <-ctx.Done():
					return nil
				case <-fail:
					return broken
				}
			})
	}()
	expect := func(want int) {
		t.Helper()
		select {
		case got := <-runs:
			if got != want {
				t.Fatalf("runs with %d, want %d", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("does not run with %d", want)
		}
	}
	expect(1000)
	changed <- struct{}{} // something else did
	value.Store(7)
	changed <- struct{}{}
	expect(7)
	close(fail)
	if err := <-ended; !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
}
