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
	// nameMost and nameLeast bound how much of a file's name is shown, in characters.
	nameMost, nameLeast = 40, 8
	// figures is how wide the rest of the line is.
	figures = len(" 100% 1023.9 MiB 1023.9 MiB/s")
)

// Bar draws how far a copy is, a line a file. It may be used by several goroutines.
type Bar struct {
	w     io.Writer
	now   func() time.Time
	width func() int

	mu           sync.Mutex
	name         string
	began, drawn time.Time
	done, total  int64
	open         bool
}

// New makes one that draws on w, a terminal on which a line has width columns at most.
func New(w io.Writer, now func() time.Time, width func() int) *Bar {
	return &Bar{w: w, now: now, width: width}
}

// Show takes how far the file is, in bytes; the first of a file has 0 done. A total below 0 is not known.
func (p *Bar) Show(name string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if done == 0 {
		p.finish()
		p.name, p.began, p.drawn, p.open = printable.Line(name), now, time.Time{}, true
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
	width := p.width()
	room := max(nameLeast, min(nameMost, width-figures))
	line := []rune(fmt.Sprintf("%-*s %4s %10s %10s/s", room, clip(p.name, room), percent, size(float64(p.done)),
		size(rate)))
	fmt.Fprintf(p.w, "\r%s", string(line[:min(len(line), width)]))
}

// clip shortens a name to so many characters.
func clip(name string, room int) string {
	if runes := []rune(name); len(runes) > room {
		return string(runes[:room-1]) + "…"
	}
	return name
}

// size formats a number of bytes for people.
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
