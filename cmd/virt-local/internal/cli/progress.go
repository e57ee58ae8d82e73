package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows what is being waited for: on a terminal as a line that changes, elsewhere one line for each
// component when it is ready.
type progress struct {
	out      io.Writer
	terminal bool
	begin    time.Time

	mu      sync.Mutex
	waiting []string
	stop    chan struct{}
	done    sync.WaitGroup
}

func newProgress(out *os.File) *progress {
	p := &progress{out: out, terminal: term.IsTerminal(int(out.Fd())), begin: time.Now(), stop: make(chan struct{})}
	if p.terminal {
		p.done.Go(p.tick)
	}
	return p
}

func (p *progress) tick() {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
			p.mu.Lock()
			p.drawWaiting()
			p.mu.Unlock()
		}
	}
}

const clearLine = "\r\x1b[K"

func (p *progress) drawWaiting() {
	if len(p.waiting) > 0 {
		fmt.Fprintf(p.out, "%s  … %s (%.0f s)", clearLine, strings.Join(p.waiting, ", "), time.Since(p.begin).Seconds())
	}
}

// report shows the progress of a component's start; it is a cluster.Report.
func (p *progress) report(name string, ready bool, took time.Duration) {
	if name == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ready {
		p.waiting = append(p.waiting, name)
		return
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(w string) bool { return w == name })
	if p.terminal {
		fmt.Fprintf(p.out, "%s  ✓ %-14s %5.1f s\n", clearLine, name, took.Seconds())
		p.drawWaiting()
	} else {
		fmt.Fprintf(p.out, "%s ready (%.1f s)\n", name, took.Seconds())
	}
}

func (p *progress) close() {
	close(p.stop)
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && len(p.waiting) > 0 {
		fmt.Fprint(p.out, clearLine)
	}
}
