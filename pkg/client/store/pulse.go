package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long a server may be silent, and how it is asked then.
const (
	pulseQuiet   = 10 * time.Second // without a word, before it is asked
	pulseLimit   = 5 * time.Second  // for the answer
	pulseAgain   = 2 * time.Second  // between questions while there is none
	pulseRegular = 15 * time.Second // between questions whose answers are wanted
)

// Pulse notices that a server is silent. The connection to one that hangs stays open, and a watch of it looks like one
// of what does not change; client-go's retries give it up after minutes. All feeds of a server share one Pulse: what
// any of them hears is an answer, and only when there is none for a while is the server asked.
type Pulse struct {
	// Probe is a cheap read. Any answer will do, also one that refuses.
	Probe func(context.Context) error
	// Changed, which must not block, is called when the server falls silent and when it is heard again.
	Changed func()
	Now     func() time.Time
	// Regular has the server asked while it is heard too: the answers are wanted.
	Regular bool

	quiet, limit, again, regular time.Duration

	mu    sync.Mutex
	heard time.Time // the last answer
	since time.Time // heard, once the server is silent
	err   error     // why it is taken to be
	past  []silence // those that are over
}

// silence is a time in which the server was not heard.
type silence struct{ from, to time.Time }

// NewPulse makes a Pulse, which Run has beating.
func NewPulse(probe func(context.Context) error, changed func(), now func() time.Time) *Pulse {
	return &Pulse{
		Probe: probe, Changed: changed, Now: now, heard: now(),
		quiet: pulseQuiet, limit: pulseLimit, again: pulseAgain, regular: pulseRegular,
	}
}

// Run watches over the server until ctx ends.
func (p *Pulse) Run(ctx context.Context) {
	var asked time.Time
	for ctx.Err() == nil {
		wait := p.due(asked).Sub(p.Now())
		if wait <= 0 {
			asked = p.Now()
			p.ask(ctx, asked)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// due returns when the server is to be asked next.
func (p *Pulse) due(asked time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return asked.Add(p.again)
	}
	due := p.heard.Add(p.quiet)
	if regular := asked.Add(p.regular); p.Regular && regular.Before(due) {
		return regular
	}
	return due
}

// ask asks the server. It is silent if neither this has an answer in time nor anything else was heard meanwhile.
func (p *Pulse) ask(ctx context.Context, asked time.Time) {
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	err := p.Probe(limited)
	switch {
	case ctx.Err() != nil:
	case err == nil || isAnswer(err):
		p.answered()
	default:
		p.mu.Lock()
		silent := !p.heard.After(asked)
		changed := silent && p.err == nil
		if silent {
			p.since, p.err = p.heard, err
		}
		p.mu.Unlock()
		if changed {
			p.Changed()
		}
	}
}

// isAnswer reports whether an error is what the server said.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// answered records that the server was heard; on a nil Pulse it does nothing.
func (p *Pulse) answered() {
	if p == nil {
		return
	}
	p.mu.Lock()
	changed := p.err != nil
	now := p.Now()
	if changed {
		p.past = append(p.past, silence{p.since, now})
	}
	p.heard, p.since, p.err = now, time.Time{}, nil
	p.mu.Unlock()
	if changed {
		p.Changed()
	}
}

// State returns since when the server has been silent; a nil Pulse takes it for not silent.
func (p *Pulse) State() State {
	if p == nil {
		return State{Synced: true}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{Synced: true, Since: p.since, Err: p.err}
}

// Away returns for how long of the time between two moments the server was silent, so that nobody's word could reach
// it: 0 of a nil Pulse.
func (p *Pulse) Away(from, to time.Time) (away time.Duration) {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.past
	if p.err != nil {
		all = append(slices.Clip(all), silence{p.since, to})
	}
	for _, s := range all {
		away += max(0, earlier(s.to, to).Sub(later(s.from, from)))
	}
	return away
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// over returns a table's state, marked stale while the server is silent. A refusal of the server's stays: it would
// refuse again.
func (p *Pulse) over(s State) State {
	silent := p.State()
	if !silent.Stale() || s.Err != nil && isAnswer(s.Err) {
		return s
	}
	if s.Since.IsZero() || silent.Since.Before(s.Since) {
		s.Since = silent.Since
	}
	if s.Err == nil {
		s.Err = silent.Err
	}
	return s
}
