package console

import (
	"io"
	"sync"
	"time"
)

// Sends types the texts of a script: one text at once, each further one when the guest has answered the one before and
// has then been silent. Read it as a Session's In, and let Out go through Watch.
type Sends struct {
	texts [][]byte
	quiet time.Duration

	active   chan struct{}
	stop     chan struct{}
	stopOnce sync.Once
	sent     bool
}

// NewSends returns the texts as an input, each of which waits until the guest has written nothing for quiet.
func NewSends(quiet time.Duration, texts ...[]byte) *Sends {
	return &Sends{texts: texts, quiet: quiet, active: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Read gives the next of the texts, or a part of it that fits.
func (s *Sends) Read(p []byte) (int, error) {
	for len(s.texts) > 0 && len(s.texts[0]) == 0 {
		s.texts, s.sent = s.texts[1:], true
	}
	if len(s.texts) == 0 || s.sent && !s.silence() {
		return 0, io.EOF
	}
	s.sent = false
	n := copy(p, s.texts[0])
	s.texts[0] = s.texts[0][n:]
	return n, nil
}

// silence waits for it; false is that it was stopped.
func (s *Sends) silence() bool {
	timer := time.NewTimer(s.quiet)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return false
		case <-s.active:
			timer.Reset(s.quiet)
		case <-timer.C:
			return true
		}
	}
}

// Stop makes a Read that waits return.
func (s *Sends) Stop() { s.stopOnce.Do(func() { close(s.stop) }) }

// Watch returns a writer to w that notifies s that the guest is writing.
func (s *Sends) Watch(w io.Writer) io.Writer { return watched{s, w} }

type watched struct {
	s *Sends
	w io.Writer
}

func (w watched) Write(p []byte) (int, error) {
	select {
	case w.s.active <- struct{}{}:
	default:
	}
	return w.w.Write(p)
}
