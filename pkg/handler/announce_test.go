package handler

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// The addresses of a guest are announced when it runs here after a migration, three times, and at no other time: not
// while it stands still, and not by a virt-handler that finds it here. One that leaves again is not announced any more.
func TestAnnounce(t *testing.T) {
	const (
		none    = launcherpb.Lifecycle_LIFECYCLE_NONE
		paused  = launcherpb.Lifecycle_LIFECYCLE_PAUSED
		running = launcherpb.Lifecycle_LIFECYCLE_RUNNING
		left    = launcherpb.Lifecycle_LIFECYCLE_MIGRATED
	)
	type state struct {
		life    launcherpb.Lifecycle
		arrived bool
	}
	for name, test := range map[string]struct {
		states []state
		fails  bool
		want   int
	}{
		"it comes":       {states: []state{{none, false}, {paused, true}, {running, true}}, want: 3},
		"it stands":      {states: []state{{none, false}, {paused, true}}},
		"on its way":     {states: []state{{none, false}, {running, false}}},
		"started here":   {states: []state{{none, false}, {running, false}, {paused, false}, {running, false}}},
		"found here":     {states: []state{{running, true}, {running, true}}},
		"goes on":        {states: []state{{none, false}, {running, true}, {paused, true}, {running, true}}, want: 3},
		"it leaves":      {states: []state{{none, false}, {running, true}, {left, true}}, want: 1},
		"it cannot tell": {states: []state{{none, false}, {running, true}}, fails: true, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &session{
					node: &Node{Now: time.Now}, log: slog.New(slog.DiscardHandler), arrivals: newSignal(),
					freezes: newSignal(), changed: func(bool) {}, outgoingNews: make(chan struct{}),
				}
				s.guest, s.gone = context.WithCancelCause(ctx)
				s.seen.Plan = &network.Plan{}
				told := 0
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.announce(ctx, func(network.Plan) error {
						told++
						if test.fails {
							return errors.New("no link")
						}
						return nil
					})
				}()
				for _, is := range test.states {
					s.saw(&launcherpb.GuestState{Lifecycle: is.life, Arrived: is.arrived})
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				cancel()
				<-done
				if told != test.want {
					t.Errorf("told %d times, want %d", told, test.want)
				}
			})
		})
	}
}
