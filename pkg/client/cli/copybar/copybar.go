// Package copybar draws how far a copy of files is, for people at a terminal: `virtctl scp` and `virtctl cp`.
package copybar

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/pace"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

const (
	// refresh is how often a line of progress is drawn anew.
	refresh = 100 * time.Millisecond
	// nameMost and nameLeast bound how much of a file's name is shown, in characters.
	nameMost, nameLeast = 40, 8
	// figures is how wide the rest of the line is, and ending how wide the time that is left is, which is shown where
	// there is room for half of a name beside it.
	figures = len(" 100% 1023.9 MiB 1023.9 MiB/s")
	ending  = len(" 100h59m left")
)

// Bar draws how far a copy is, a line a file. It may be used by several goroutines.
type Bar struct {
	w     io.Writer
	width func() int
	now   func() time.Time
	meter *pace.Meter

	mu    sync.Mutex
	drawn time.Time
	open  bool
}

// New makes one that draws on w, a terminal on which a line has width columns at most.
func New(w io.Writer, now func() time.Time, width func() int) *Bar {
	return &Bar{w: w, now: now, width: width, meter: pace.NewMeter(now)}
}

// Show takes how far the file is, in bytes; a file begins with 0 done, or with another name. A total below 0 is not
// known.
func (p *Bar) Show(name string, done, total int64) { p.show(name, done, total, p.meter.Show) }

// Begin is Show for a copy that goes on where it was cut off: what is done before it is no speed.
func (p *Bar) Begin(name string, done, total int64) { p.show(name, done, total, p.meter.Begin) }

func (p *Bar) show(name string, done, total int64, take func(name string, done, total int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, name := p.now(), printable.Line(name)
	if before := p.meter.Reading(); done == 0 || !p.open || before.Name != name {
		p.finish()
		p.drawn, p.open = time.Time{}, true
	}
	take(name, done, total)
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
	r, width := p.meter.Reading(), p.width()
	rest := width - figures
	timed := rest-ending >= nameMost/2
	if timed {
		rest -= ending
	}
	room := max(nameLeast, min(nameMost, rest))
	text := fmt.Sprintf("%-*s %4s %10s %12s", room, clip(r.Name, room), r.Percent(), pace.Size(float64(r.Done)),
		r.Speed())
	if timed {
		left := ""
		if r.Left > 0 {
			left = r.Remaining() + " left"
		}
		text += fmt.Sprintf(" %*s", ending-1, left) // blanks take the time before away
	}
	line := []rune(text)
	fmt.Fprintf(p.w, "\r%s", string(line[:min(len(line), width)]))
}

// clip shortens a name to so many characters.
func clip(name string, room int) string {
	if runes := []rune(name); len(runes) > room {
		return string(runes[:room-1]) + "…"
	}
	return name
}
