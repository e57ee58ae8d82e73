package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestHeartbeatsAfterAnOutage has nodes whose virt-handler could not be heard while the API server did not answer: that
// is no silence of theirs.
func TestHeartbeatsAfterAnOutage(t *testing.T) {
	t.Parallel()
	silent := func(back time.Duration) bool {
		at := now
		w := world(&fake{})
		w.Now = func() time.Time { return at }
		w.Pulse = store.NewPulse(nil, func() {}, w.Now)
		outage(t, w.Pulse, &at, time.Hour)
		at = at.Add(back)
		a := New(w)
		press(t, a, "2", "/", "'node1")
		return strings.Contains(a.screen(), "virt-handler sile")
	}
	if silent(time.Minute) {
		t.Error("silent a minute after the API server was back")
	}
	if !silent(4 * time.Minute) {
		t.Error("not silent four minutes after the API server was back")
	}
}

// outage has the server of a pulse be silent from now on for as long, by a clock.
func outage(t *testing.T, p *store.Pulse, clock *time.Time, length time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	back := clock.Add(length)
	*clock = clock.Add(time.Minute) // it has said nothing for so long that it is asked
	p.Probe = func(context.Context) error {
		if p.State().Stale() {
			return nil
		}
		*clock = back
		return errCut
	}
	p.Changed = func() {
		if !p.State().Stale() {
			cancel()
		}
	}
	p.Run(ctx)
	if got := p.Away(back.Add(-length), back); got != length {
		t.Fatalf("the server was away for %v, not %v", got, length)
	}
}
