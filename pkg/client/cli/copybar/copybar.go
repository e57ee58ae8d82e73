// Package copybar draws how far a copy of files is, for people at a terminal: `virtctl scp` and `virtctl cp`.
package copybar

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

const (
	// refresh is how often a line of progress is drawn anew.
	refresh = 100 * time.Millisecond
	// nameWidth is how much of a file's name is shown, in characters.
	nameWidth = 40
)

// Bar draws how far a copy is, a line a file. It may be used by several goroutines.
type Bar struct {
	w   io.Writer
	now func() time.Time

	mu           sync.Mutex
	name         string
	began, drawn time.Time
	done, total  int64
	open         bool
}

// New makes one that draws on w, a terminal.
func New(w io.Writer, now func() time.Time) *Bar { return &Bar{w: w, now: now} }

// Show takes how far the file is, in bytes; the first of a file has 0 done. A total below 0 is not known.
func (p *Bar) Show(name string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if done == 0 {
		p.finish()
		p.name, p.began, p.drawn, p.open = clip(name), now, time.Time{}, true
	}
	p.done, p.total = done, total
	if now.Sub(p.drawn) >= refresh {
		p.drawn = now
		p.draw()
	}
}

// End ends the last line.
func (p *Bar) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish()
}

func (p *Bar) finish() {
	if p.open {
		p.draw()
		fmt.Fprintln(p.w)
		p.open = false
	}
}

func (p *Bar) draw() {
	percent := "100%"
	switch {
	case p.total > 0:
		percent = fmt.Sprintf("%d%%", min(100, p.done*100/p.total))
	case p.total < 0:
		percent = ""
	}
	rate := 0.0
	if took := p.now().Sub(p.began).Seconds(); took > 0 {
		rate = float64(p.done) / took
	}
	fmt.Fprintf(p.w, "\r%-*s %4s %10s %10s/s", nameWidth, p.name, percent, size(float64(p.done)), size(rate))
}

// clip makes a name, which may be a guest's choice, fit for a terminal.
func clip(name string) string {
	name = printable.Line(name)
	if runes := []rune(name); len(runes) > nameWidth {
		return string(runes[:nameWidth-1]) + "…"
	}
	return name
}

// size is a number of bytes for people.
func size(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; bytes >= 1024 && i < len(units)-1; i++ {
		bytes /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", bytes)
	}
	return fmt.Sprintf("%.1f %s", bytes, units[i])
}
