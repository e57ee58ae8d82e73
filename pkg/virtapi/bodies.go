package virtapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxBodies is the number of webhook calls' bodies that are read at a time, maxBodyBytes the most that they may
	// hold together.
	maxBodies    = 256
	maxBodyBytes = 64 << 20
	// maxTurns is the number of webhook calls of unauthenticated callers that are worked on at a time.
	maxTurns          = 128
	maxTurnsPerSource = 32
)

// bodies reads the bodies of calls that anybody may make. When there are too many at a time, or they hold too much, the
// oldest is cut of the source that has most: who sends a whole request has it read long before it is the oldest.
type bodies struct {
	most  int
	limit int64

	mu   sync.Mutex
	held int64
	open []*body // oldest first
}

// body is a body that is being read, or was read and is not released yet.
type body struct {
	source string
	held   int64
	ended  bool   // read to its end, so that it cannot be cut any more
	isCut  bool   // to make room
	cut    func() // makes the read fail
}

func newBodies(most int, limit int64) *bodies { return &bodies{most: most, limit: limit} }

// read reads a request's body. done lets it go. Errors are for the caller to see.
func (b *bodies) read(
	w http.ResponseWriter, r *http.Request, source string, within time.Duration,
) (_ io.ReadCloser, done func(), _ error) {
	control := http.NewResponseController(w)
	// a connection that is gone is cut, too
	one := &body{source: source, cut: func() { _ = control.SetReadDeadline(past) }}
	b.begin(one)
	data, err := b.fill(control, w, r, one, within)
	if err != nil {
		b.end(one)
		return nil, nil, err
	}
	return memory{bytes.NewReader(data)}, func() { b.end(one) }, nil
}

func (b *bodies) fill(
	control *http.ResponseController, w http.ResponseWriter, r *http.Request, one *body, within time.Duration,
) ([]byte, error) {
	// Servers of tests may have no deadlines; then the server's own have to do.
	if err := b.deadline(control, one, time.Now().Add(within)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, apierrors.NewBadRequest("the connection is gone: " + err.Error())
	}
	from := http.MaxBytesReader(w, r.Body, maxReview)
	var data []byte
	for {
		if len(data) == cap(data) {
			grown := max(2*cap(data), 16<<10)
			if !b.hold(one, int64(grown-cap(data))) {
				return nil, tooMany()
			}
			data = append(make([]byte, 0, grown), data...)
		}
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if !b.finish(one) {
				return nil, tooMany()
			}
			// What follows is not the body's: a deadline that passes then would end the request.
			if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return nil, apierrors.NewBadRequest("the connection is gone: " + err.Error())
			}
			return data, nil
		default:
			return nil, b.explain(one, err)
		}
	}
}

// explain returns the caller's error for a body that could not be read.
func (b *bodies) explain(one *body, err error) error {
	b.mu.Lock()
	cut := one.isCut
	b.mu.Unlock()
	var tooLarge *http.MaxBytesError
	switch {
	case cut:
		return tooMany()
	case errors.As(err, &tooLarge):
		return apierrors.NewRequestEntityTooLargeError("an AdmissionReview has objects of at most 3 MiB")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return apierrors.NewTimeoutError("the body did not arrive in time", 1)
	}
	return apierrors.NewBadRequest("cannot read the request's body: " + err.Error())
}

func tooMany() error {
	return apierrors.NewTooManyRequests("virt-api has too many webhook calls whose bodies have not arrived", 1)
}

// deadline sets a body's deadline, unless the body has been cut already.
func (b *bodies) deadline(control *http.ResponseController, one *body, at time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one.isCut {
		return nil
	}
	return control.SetReadDeadline(at)
}

func (b *bodies) begin(one *body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, one)
	for b.unread() > b.most && b.makeRoom(one) {
	}
}

func (b *bodies) end(one *body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= one.held
	one.held = 0
	for i, other := range b.open {
		if other == one {
			b.open = append(b.open[:i], b.open[i+1:]...)
			return
		}
	}
}

// hold accounts for more memory; false is that the body has been cut, or has to be.
func (b *bodies) hold(one *body, more int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one.isCut {
		return false
	}
	one.held += more
	b.held += more
	for b.held > b.limit {
		if !b.makeRoom(one) {
			return false
		}
	}
	return true
}

// finish records that a body was read; false means that it was cut before.
func (b *bodies) finish(one *body) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one.ended = true
	return !one.isCut
}

// unread returns how many are being read; b.mu is held.
func (b *bodies) unread() int {
	n := 0
	for _, one := range b.open {
		if !one.ended && !one.isCut {
			n++
		}
	}
	return n
}

// makeRoom cuts one body, not keep, and gives back what it holds; false is that there is none to cut. b.mu is held.
func (b *bodies) makeRoom(keep *body) bool {
	of := map[string]int{}
	for _, one := range b.open {
		if !one.ended && !one.isCut {
			of[one.source]++
		}
	}
	var victim *body
	for _, one := range b.open {
		if one != keep && !one.ended && !one.isCut && (victim == nil || of[one.source] > of[victim.source]) {
			victim = one
		}
	}
	if victim == nil {
		return false
	}
	victim.isCut = true
	b.held -= victim.held
	victim.held = 0
	victim.cut()
	return true
}

// turns lets so many calls be worked on at a time, and so many of one source. The others wait.
type turns struct {
	all       chan struct{}
	perSource int

	mu sync.Mutex
	of map[string]*sourceTurns
}

type sourceTurns struct {
	free  chan struct{}
	users int
}

func newTurns(all, perSource int) *turns {
	return &turns{all: make(chan struct{}, all), perSource: perSource, of: map[string]*sourceTurns{}}
}

// take waits for a turn; end gives it back. The error is ctx's.
func (t *turns) take(ctx context.Context, source string) (end func(), _ error) {
	t.mu.Lock()
	own := t.of[source]
	if own == nil {
		own = &sourceTurns{free: make(chan struct{}, t.perSource)}
		t.of[source] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.of, source)
		}
	}
	select {
	case own.free <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	select {
	case t.all <- struct{}{}:
	case <-ctx.Done():
		<-own.free
		leave()
		return nil, ctx.Err()
	}
	return func() { <-t.all; <-own.free; leave() }, nil
}
