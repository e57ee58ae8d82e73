// Package outage reports that the API server does not answer for a while, and that it does again: once each, however
// many machines are followed at the same time. Whoever shows it puts a Reporter into the
// context, as net/http/httptrace has it, and each loop that outlives an outage has a Follower of that context.
package outage

import (
	"context"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// Reporter says of each outage when it begins and when it is over. It is safe for use by several goroutines.
type Reporter struct {
	// Lost is called with the first error of an outage, Back with how long it took.
	Lost func(error)
	Back func(time.Duration)
	Now  func() time.Time

	mu sync.Mutex
	// away are those that have had no answer since.
	away  map[*Follower]bool
	since time.Time
}

type key struct{}

// With returns a context whose followers report to r; with nil they report to nobody.
func With(ctx context.Context, r *Reporter) context.Context { return context.WithValue(ctx, key{}, r) }

// Follower is one loop that goes on over outages.
type Follower struct {
	reporter *Reporter
	// asked is when the request began whose answer is waited for; zero where the loop does not say.
	asked time.Time
}

// Follow begins one. It reports to the context's Reporter, or to nobody.
func Follow(ctx context.Context) *Follower {
	r, _ := ctx.Value(key{}).(*Reporter)
	return &Follower{reporter: r}
}

// Asks records that a request begins. An outage counts from the first one that has no answer, which may hang for long
// before it fails.
func (f *Follower) Asks() {
	if f.reporter != nil {
		f.asked = f.reporter.Now()
	}
}

// Lost records that a request had no answer. An error that is an answer, or that the context ended, is no outage.
func (f *Follower) Lost(ctx context.Context, err error) {
	r := f.reporter
	if r == nil || err == nil || ctx.Err() != nil || !client.Passing(err) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.away) == 0 {
		r.away, r.since = map[*Follower]bool{}, f.asked
		if f.asked.IsZero() {
			r.since = r.Now()
		}
		r.Lost(err)
	}
	r.away[f] = true
}

// Answered records that a request had its answer. An outage is over when all followers that it has met have had theirs.
func (f *Follower) Answered() {
	r := f.reporter
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.away[f] {
		return
	}
	if delete(r.away, f); len(r.away) == 0 {
		r.Back(r.Now().Sub(r.since))
	}
}

// End ends it. What ends amid an outage has no answer to wait for.
func (f *Follower) End() {
	if r := f.reporter; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.away, f)
	}
}
