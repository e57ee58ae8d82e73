package page

import (
	"context"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/emulator"
)

// ConsoleEnds are the two ends of a guest's serial console, and who hears of the connection.
type ConsoleEnds struct {
	// In is what goes to the guest; StopInput has a Read of it return.
	In        io.Reader
	StopInput func()
	// Out gets what the guest writes.
	Out io.Writer
	// Connected is called when the stream is open, also again, and Lost when it has ended and is opened again; nil is
	// its normal end.
	Connected func()
	Lost      func(error)
}

// serial is a terminal at a guest's serial console. A session's goroutines write and read, the app's draws.
type serial struct {
	ctx     context.Context
	stop    context.CancelFunc
	changed chan struct{} // holds a token when there is something new
	now     func() time.Time

	mu   sync.Mutex
	term *emulator.Terminal
	link link
	// answers is whether what the guest asks its terminal is answered: not while the server sends again what it asked
	// long ago, so only once a key was pressed.
	answers bool
	keys    *keyboard
}

// link is how the connection is.
type link struct {
	open  bool
	since time.Time // when it was lost
	err   error     // why
	ended bool      // nothing opens it again
}

// chunk is how much is taken at once of what a guest writes, bytes: drawing does not wait longer.
const chunk = 1 << 10

// settle is how long more of what a guest writes is waited for before it is drawn.
const settle = 15 * time.Millisecond

type (
	serialChanged struct{ serial *serial }
	serialEnded   struct {
		serial *serial
		keys   *keyboard
		err    error
	}
)

func newSerial(now func() time.Time) *serial {
	ctx, stop := context.WithCancel(context.Background())
	return &serial{ctx: ctx, stop: stop, now: now, changed: make(chan struct{}, 1), term: emulator.New(80, 24)}
}

// start opens the console, and keeps it open until stop.
func (s *serial) start(actions Actions, key store.Key) tea.Cmd {
	keys := newKeyboard()
	s.mu.Lock()
	s.keys, s.link = keys, link{}
	s.mu.Unlock()
	return func() tea.Msg {
		err := actions.Console(s.ctx, key,
			ConsoleEnds{In: keys, StopInput: keys.close, Out: s, Connected: s.connected, Lost: s.lost})
		if s.ctx.Err() != nil {
			return nil
		}
		return serialEnded{s, keys, err}
	}
}

// next waits for a change, and a moment for more.
func (s *serial) next() tea.Cmd {
	return func() tea.Msg {
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.changed:
		}
		timer := time.NewTimer(settle)
		defer timer.Stop()
		select {
		case <-s.ctx.Done():
			return nil
		case <-timer.C:
			return serialChanged{s}
		}
	}
}

func (s *serial) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// connected begins with an empty screen: the server sends again what the guest wrote last.
func (s *serial) connected() {
	s.mu.Lock()
	s.term.Reset()
	s.link, s.answers = link{open: true}, false
	s.mu.Unlock()
	s.notify()
}

func (s *serial) lost(err error) {
	s.mu.Lock()
	s.link = link{since: s.now(), err: err}
	s.mu.Unlock()
	s.notify()
}

// ended records that nothing opens the connection again.
func (s *serial) ended(m serialEnded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.keys == s.keys {
		s.link = link{since: s.now(), err: m.err, ended: true}
	}
}

// Write takes what the guest wrote.
func (s *serial) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		part := rest[:min(chunk, len(rest))]
		rest = rest[len(part):]
		s.mu.Lock()
		_, err := s.term.Write(part)
		if replies := s.term.Replies(); s.answers && len(replies) > 0 {
			s.keys.write(string(replies))
		}
		s.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	s.notify()
	return len(data), nil
}

// press sends what the terminal makes of something; false is that nobody is there to hear it.
func (s *serial) press(text func(*emulator.Terminal) string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.link.open {
		return false
	}
	s.answers = true
	return s.keys.write(text(s.term))
}

func (s *serial) state() link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// The least that a guest is given, cells: it cannot know how much is shown, and serial lines have terminals of this
// size.
const (
	leastColumns = 80
	leastRows    = 24
)

// view draws the part of the screen around the cursor, or back lines before that, exactly width and height cells. It
// returns how far back there is something.
func (s *serial) view(width, height, back int, plain bool) (lines []string, furthest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term.Resize(max(width, leastColumns), max(height, leastRows))
	_, rows := s.term.Size()
	x, y, _ := s.term.Cursor()
	past := s.term.Lines() - rows
	end := max(past+y+1, past+height)
	furthest = end - height
	end -= max(0, min(back, furthest))
	from := max(0, x-width+1)
	for n := end - height; n < end; n++ {
		lines = append(lines, s.term.Line(n, from, width, plain, s.link.open))
	}
	return lines, furthest
}

// keyboard holds what was typed until the session takes it.
type keyboard struct {
	mu     sync.Mutex
	more   sync.Cond
	typed  []byte
	closed bool
}

// maxTyped bounds what was typed and not taken yet, bytes.
const maxTyped = 64 << 10

func newKeyboard() *keyboard {
	k := &keyboard{}
	k.more.L = &k.mu
	return k
}

// write queues text for the guest; it returns false when too much waits already.
func (k *keyboard) write(text string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || len(k.typed)+len(text) > maxTyped {
		return false
	}
	k.typed = append(k.typed, text...)
	k.more.Signal()
	return true
}

// Read waits for what is typed; io.EOF once the keyboard is closed.
func (k *keyboard) Read(buf []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.typed) == 0 && !k.closed {
		k.more.Wait()
	}
	if k.closed {
		return 0, io.EOF
	}
	n := copy(buf, k.typed)
	k.typed = k.typed[n:]
	return n, nil
}

func (k *keyboard) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.more.Broadcast()
}
