package page

import (
	"bytes"
	"context"
	"strings"
	"sync"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// tail is the end of what a guest wrote to its serial console. One goroutine writes, the app's reads.
type tail struct {
	ctx     context.Context
	stop    context.CancelFunc
	changed chan struct{} // holds a token when there is something new

	mu    sync.Mutex
	lines []string // the last one is not ended yet
}

// tailLines is how many lines are kept; maxLine bounds each, bytes.
const (
	tailLines = 200
	maxLine   = 1 << 10
)

type (
	tailChanged struct{ tail *tail }
	tailEnded   struct {
		tail *tail
		err  error
	}
)

func newTail() *tail {
	ctx, stop := context.WithCancel(context.Background())
	return &tail{ctx: ctx, stop: stop, changed: make(chan struct{}, 1), lines: []string{""}}
}

// start reads until stop, and notifies of changes.
func (t *tail) start(actions Actions, key store.Key) tea.Cmd {
	return tea.Batch(func() tea.Msg {
		err := actions.Tail(t.ctx, key, tailLines, t)
		if t.ctx.Err() != nil {
			return nil
		}
		return tailEnded{t, err}
	}, t.next())
}

// next waits for a change.
func (t *tail) next() tea.Cmd {
	return func() tea.Msg {
		select {
		case <-t.ctx.Done():
			return nil
		case <-t.changed:
			return tailChanged{t}
		}
	}
}

// Write takes what the guest wrote. A carriage return begins a line anew, as a terminal's does.
func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	for part := range bytes.Lines(data) {
		text, ended := strings.CutSuffix(string(part), "\n")
		last := &t.lines[len(t.lines)-1]
		if line := *last + text; len(line) <= maxLine {
			*last = line
		}
		if ended {
			t.lines = append(t.lines, "")
		}
	}
	if extra := len(t.lines) - tailLines; extra > 0 {
		t.lines = append(t.lines[:0:0], t.lines[extra:]...)
	}
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
	return len(data), nil
}

// last returns the last lines that say something, at most n.
func (t *tail) last(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, line := range t.lines {
		line = strings.TrimRight(line, "\r")
		if i := strings.LastIndexByte(line, '\r'); i >= 0 {
			line = line[i+1:]
		}
		out = append(out, line)
	}
	for len(out) > 0 && strings.TrimSpace(out[len(out)-1]) == "" {
		out = out[:len(out)-1]
	}
	return out[max(0, len(out)-n):]
}
