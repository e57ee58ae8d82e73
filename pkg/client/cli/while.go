package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

// patience is how long something may take before it is said that it does.
const patience = time.Second

// While does something that may take its time. On a terminal, from the first second on, a line of standard error says
// what it is and for how long it has been going on; at the end the line is gone.
func (s *IOStreams) While(what string, do func() error) error {
	return s.WhileStage(func() string { return what }, do)
}

// WhileStage does as While does, for something whose stages have names: what is asked anew each second, from another
// goroutine.
func (s *IOStreams) WhileStage(what func() string, do func() error) error {
	if !s.ErrIsTTY {
		return do()
	}
	done, shown := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shown)
		s.showStatus(what, done)
	}()
	defer func() {
		close(done)
		<-shown
	}()
	return do()
}

func (s *IOStreams) showStatus(what func() string, done <-chan struct{}) {
	start := time.Now()
	tick := time.NewTicker(patience)
	defer tick.Stop()
	defer s.Status("")
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.Status(fmt.Sprintf("%s … %s", what(), time.Since(start).Round(time.Second)))
	}
}

// status is the line at the end of a terminal's standard error that is drawn anew: what is waited for, how far it is.
type status struct {
	mu sync.Mutex
	// drawn is how long it is on the screen.
	drawn int
}

// Status shows text as the status line of a terminal in place of the one that is shown; "" takes it away.
func (s *IOStreams) Status(text string) {
	if !s.ErrIsTTY {
		return
	}
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	if text == "" {
		s.wipe()
		return
	}
	line := []rune(printable.Line(text))
	line = line[:min(len(line), s.LineWidth())]
	fmt.Fprintf(s.RawErr(), "\r%s%s", string(line), strings.Repeat(" ", max(0, s.status.drawn-len(line))))
	s.status.drawn = max(s.status.drawn, len(line))
}

// LineWidth returns how many columns a line that is to be drawn anew has at most: one that wraps cannot be taken
// back.
func (s *IOStreams) LineWidth() int {
	width := s.Width()
	if width <= 1 {
		width = 80 // standard output is no terminal, or one that does not say
	}
	return width - 1
}

// wipe takes the status line away. The caller holds its lock.
func (s *IOStreams) wipe() {
	if s.status.drawn > 0 {
		fmt.Fprintf(s.RawErr(), "\r%s\r", strings.Repeat(" ", s.status.drawn))
		s.status.drawn = 0
	}
}

// say writes a line to standard error while something is waited for: above the status line, where there is one.
func (s *IOStreams) say(format string, args ...any) {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	s.wipe()
	fmt.Fprintf(s.ErrOut, format+"\n", args...)
}
