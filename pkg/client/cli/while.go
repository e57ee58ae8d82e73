package cli

import (
	"fmt"
	"strings"
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

// WhileStage is While for something whose stages have names: what is asked anew each second, from another goroutine.
func (s *IOStreams) WhileStage(what func() string, do func() error) error {
	if !s.ErrIsTTY {
		return do()
	}
	done, shown := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shown)
		s.tell(what, done)
	}()
	defer func() {
		close(done)
		<-shown
	}()
	return do()
}

func (s *IOStreams) tell(what func() string, done <-chan struct{}) {
	start := time.Now()
	tick := time.NewTicker(patience)
	defer tick.Stop()
	longest := 0
	for {
		select {
		case <-done:
			if longest > 0 {
				fmt.Fprintf(s.RawErr(), "\r%s\r", strings.Repeat(" ", longest))
			}
			return
		case <-tick.C:
		}
		line := []rune(fmt.Sprintf("%s … %s", printable.Line(what()), time.Since(start).Round(time.Second)))
		width := s.Width()
		if width <= 1 {
			width = 80 // standard output is none, or none that tells
		}
		if len(line) >= width {
			line = line[:width-1] // a line that wraps could not be taken back
		}
		longest = max(longest, len(line))
		fmt.Fprintf(s.RawErr(), "\r%s%s", string(line), strings.Repeat(" ", longest-len(line)))
	}
}
