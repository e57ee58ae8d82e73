package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/stream"
)

const (
	// maxStandby is how many streams of a port are on standby at most.
	maxStandby = 4
	// standbyLife is how long one waits for its use; virt-handler waits longer. An idle port has none.
	standbyLife = 30 * time.Second
	// answerWithin is how long the answer of a stream on standby is waited for. After that another stream finds out why
	// there is none.
	answerWithin = 2 * time.Second
)

// StandbyOpener opens streams on standby; *client.Client is one.
type StandbyOpener interface {
	StandbyForward(ctx context.Context, resource, namespace, name string, port uint16) (*stream.Conn, error)
}

// StandbyTo opens streams on standby to ports of one guest through a client.
func StandbyTo(c StandbyOpener, t Target) func(ctx context.Context, port uint16) (*stream.Conn, error) {
	return func(ctx context.Context, port uint16) (*stream.Conn, error) {
		return ofTarget(t, func(resource string) (*stream.Conn, error) {
			return c.StandbyForward(ctx, resource, t.Namespace, t.Name, port)
		})
	}
}

var _ StandbyOpener = (*client.Client)(nil)

// standbys are the streams on standby of one local port. After a connection there is one for the next; when a
// connection found none although there should have been, there is one more from then on, until they are not used.
type standbys struct {
	ctx  context.Context
	open func(ctx context.Context) (*stream.Conn, error)
	// life and answerWithin are the constants.
	life, answerWithin time.Duration

	mu sync.Mutex
	// ready are on standby, and opening counts those that will be. wanted is how many there should be.
	ready           []*standby
	opening, wanted int
	// unknown says that the server does not have such streams.
	unknown bool
	work    sync.WaitGroup
}

// standby is one stream.
type standby struct {
	*stream.Conn
	// answer has the end of AwaitAnswer: the guest is reached, or the stream is of no use any more.
	answer chan error
	expire *time.Timer
}

// newStandbys makes none yet. They end with ctx; wait returns when they have. open may be nil: there are never any.
func newStandbys(ctx context.Context, open func(ctx context.Context) (*stream.Conn, error)) *standbys {
	return &standbys{ctx: ctx, open: open, life: standbyLife, answerWithin: answerWithin}
}

// errNoAnswer is a server that does not say whether the guest is reached.
var errNoAnswer = errors.New("the server did not say whether the guest is reached")

// take returns a stream that has reached the guest, nil when there is none. What the program sends meanwhile is sent
// behind the question. An error is a stream that ended after that, so that nobody knows whether the guest has it.
func (s *standbys) take(ctx context.Context, program *early) (*stream.Conn, error) {
	first := s.next()
	if first == nil {
		s.missed()
		return nil, nil
	}
	program.begin()
	for one := first; one != nil; one = s.next() {
		err := s.use(ctx, one, program)
		if err == nil {
			program.arrived()
			return one.Conn, nil
		}
		s.work.Go(func() { _ = one.Close() }) // it has ended
		if program.sent && !stream.NotReached(err) {
			return nil, fmt.Errorf("the connection was lost before the guest answered: %w", err)
		}
		// It was cut, by a guest that has moved or a virt-api that is gone: the guest has got nothing that was sent
		// over it.
		program.sent = false
	}
	return nil, nil
}

// missed notes that a connection found none.
func (s *standbys) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted > 0 {
		s.wanted = min(s.wanted+1, maxStandby)
	}
}

// next takes one out.
func (s *standbys) next() *standby {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return nil
	}
	one := s.ready[0]
	s.ready = s.ready[1:]
	one.expire.Stop()
	return one
}

// use asks for the guest, and sends what the program says. It returns nil when the guest is reached.
func (s *standbys) use(ctx context.Context, one *standby, program *early) error {
	if err := one.Ask(); err != nil {
		return err
	}
	timer := time.NewTimer(s.answerWithin)
	defer timer.Stop()
	got := program.got
	var lost error
	for {
		select {
		case err := <-one.answer:
			return cmp.Or(err, lost)
		case <-got:
			got = nil
			if len(program.bytes) > 0 {
				program.sent = true // as far as anybody can know
				_, lost = one.Write(program.bytes)
				timer.Reset(attemptTimeout) // there is no other way any more
			}
		case <-timer.C:
			return errNoAnswer
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fill opens as many as there should be, in the background, once a connection was made.
func (s *standbys) fill() {
	if s.open == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = max(s.wanted, 1)
	for !s.unknown && s.ctx.Err() == nil && len(s.ready)+s.opening < s.wanted {
		s.opening++
		s.work.Go(s.add)
	}
}

// add opens one. When it cannot be opened there is none: the next connection finds out why.
func (s *standbys) add() {
	ctx, cancel := context.WithTimeout(s.ctx, attemptTimeout)
	defer cancel()
	conn, err := s.open(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	switch {
	case err != nil:
		s.wanted = 0
		return
	case !conn.Standby():
		s.unknown = true
		fallthrough
	case s.ctx.Err() != nil:
		s.work.Go(func() { _ = conn.Close() }) // nothing was sent over it
		return
	}
	one := &standby{Conn: conn, answer: make(chan error, 1)}
	one.expire = time.AfterFunc(s.life, func() { s.drop(one) })
	s.ready = append(s.ready, one)
	s.work.Go(func() { s.watch(one) })
}

// watch waits for what the server says; the end of a stream that nobody has asked for anything is seen at once.
func (s *standbys) watch(one *standby) {
	stop := context.AfterFunc(s.ctx, func() { s.drop(one) })
	defer stop()
	one.answer <- one.AwaitAnswer()
	s.drop(one) // unless somebody has asked
}

// drop ends one that is not used. The port is not used much, then.
func (s *standbys) drop(one *standby) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.ready, one)
	if at < 0 {
		return // it is in use, or has ended
	}
	s.ready = slices.Delete(s.ready, at, at+1)
	s.wanted = 0
	one.expire.Stop()
	s.work.Go(func() { _ = one.Close() }) // nothing was sent over it
}

// wait returns when none is left, after the end of ctx.
func (s *standbys) wait() { s.work.Wait() }
