package handler

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// The addresses of a guest are announced when it runs here after a migration, three times, and at no other time: not
// while it stands still, and not by a virt-handler that finds it here. One that leaves again is not announced any more,
// nor is an interface whose link is down.
func TestAnnounce(t *testing.T) {
	type state struct {
		life    launcherpb.Lifecycle
		arrived bool
		lasts   time.Duration
	}
	const (
		lifeRunning = launcherpb.Lifecycle_LIFECYCLE_RUNNING
		lifePaused  = launcherpb.Lifecycle_LIFECYCLE_PAUSED
	)
	none := state{life: launcherpb.Lifecycle_LIFECYCLE_NONE}
	here, hereStill := state{life: lifeRunning}, state{life: lifePaused}
	running, runningOn := state{lifeRunning, true, 0}, state{lifeRunning, true, time.Hour}
	paused, pausedLong := state{lifePaused, true, 0}, state{lifePaused, true, time.Hour}
	left := state{launcherpb.Lifecycle_LIFECYCLE_MIGRATED, true, 0}
	for name, test := range map[string]struct {
		states []state
		fails  bool
		want   int
	}{
		"it comes":                {states: []state{none, paused, running}, want: 3},
		"it stands":               {states: []state{none, paused}},
		"on its way":              {states: []state{none, here}},
		"started here":            {states: []state{none, here, hereStill, here}},
		"found here":              {states: []state{running, running}},
		"goes on":                 {states: []state{none, running, paused, running}, want: 3},
		"goes on later":           {states: []state{none, running, pausedLong, running}, want: 3},
		"paused when all is said": {states: []state{none, runningOn, paused, running}, want: 3},
		"it leaves":               {states: []state{none, running, left}, want: 1},
		"it cannot tell":          {states: []state{none, running}, fails: true, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &session{
					node: &Node{Now: time.Now}, log: slog.New(slog.DiscardHandler), arrivals: newSignal(),
					freezes: newSignal(), changed: func(bool) {}, outgoingNews: make(chan struct{}),
				}
				s.guest, s.gone = context.WithCancelCause(ctx)
				s.seen.Plan = &network.Plan{Interfaces: []network.Interface{
					{Name: "default"}, {Name: "pulled"}, {Name: "red"},
				}}
				links := map[string]string{"default": "up", "pulled": "down"}
				told := 0
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.announce(ctx, func(plan network.Plan) error {
						told++
						var names []string
						for _, nic := range plan.Interfaces {
							names = append(names, nic.Name)
						}
						if !slices.Equal(names, []string{"default", "red"}) {
							t.Errorf("told of %q", names)
						}
						if test.fails {
							return errors.New("no link")
						}
						return nil
					})
				}()
				for _, is := range test.states {
					s.saw(&launcherpb.GuestState{Lifecycle: is.life, Arrived: is.arrived, InterfaceLinks: links})
					synctest.Wait()
					time.Sleep(is.lasts)
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
