package emulator

import (
	"slices"

	"github.com/charmbracelet/x/ansi"
)

// to moves the cursor, as far as the screen goes.
func (t *Terminal) to(x, y int) {
	t.x, t.y, t.pending = max(0, min(x, t.width-1)), max(0, min(y, t.height-1)), false
}

// address moves the cursor to a line that is counted from where scrolling begins, in the mode for that.
func (t *Terminal) address(x, y int) {
	if !t.origin {
		t.to(x, y)
		return
	}
	t.to(x, min(t.top+y, t.bottom-1))
}

// up and down stop at the end of what scrolls, if they begin there.
func (t *Terminal) up(n int) {
	limit := 0
	if t.y >= t.top {
		limit = t.top
	}
	t.to(t.x, max(limit, t.y-n))
}

func (t *Terminal) down(n int) {
	limit := t.height
	if t.y < t.bottom {
		limit = t.bottom
	}
	t.to(t.x, min(limit-1, t.y+n))
}

// tab goes to the n-th stop, backwards where n is negative.
func (t *Terminal) tab(n int) {
	x, step := t.x, 1
	if n < 0 {
		n, step = -n, -1
	}
	for n > 0 && x+step >= 0 && x+step < t.width {
		if x += step; t.tabs[x] {
			n--
		}
	}
	t.to(x, t.y)
}

// lineFeed goes one line down, and scrolls at the end.
func (t *Terminal) lineFeed() {
	t.pending = false
	switch {
	case t.y == t.bottom-1:
		t.scrollUp(1)
	case t.y < t.height-1:
		t.y++
	}
}

func (t *Terminal) reverseFeed() {
	t.pending = false
	switch {
	case t.y == t.top:
		t.addLines(t.top, 1)
	case t.y > 0:
		t.y--
	}
}

// region chooses the lines that scroll.
func (t *Terminal) region(params ansi.Params) {
	top, _, _ := params.Param(0, 1)
	bottom, _, _ := params.Param(1, 0)
	if bottom <= 0 || bottom > t.height {
		bottom = t.height
	}
	if top = max(1, top); top >= bottom {
		return
	}
	t.top, t.bottom = top-1, bottom
	t.address(0, 0)
}

// scrollUp takes n lines away at the first one that scrolls, and adds as many at the end.
func (t *Terminal) scrollUp(n int) {
	n = min(n, t.bottom-t.top)
	if t.top == 0 && !t.alternate {
		s := *t.current()
		t.remember(s[:n])
		for y := range n { // the history has the lines now
			s[y] = make([]Cell, t.width)
		}
	}
	t.rotate(t.top, n)
	t.eraseLines(t.bottom-n, t.bottom)
}

// takeLines takes n lines away at a line, and addLines adds as many there; the lines to the end of what scrolls move.
func (t *Terminal) takeLines(at, n int) {
	n = min(n, t.bottom-at)
	t.rotate(at, n)
	t.eraseLines(t.bottom-n, t.bottom)
}

func (t *Terminal) addLines(at, n int) {
	n = min(n, t.bottom-at)
	t.rotate(at, t.bottom-at-n)
	t.eraseLines(at, at+n)
}

// rotate brings the first n lines from a line on to the end of what scrolls.
func (t *Terminal) rotate(at, n int) {
	lines := (*t.current())[at:t.bottom]
	slices.Reverse(lines[:n])
	slices.Reverse(lines[n:])
	slices.Reverse(lines)
}

func (t *Terminal) eraseLines(from, to int) {
	for y := from; y < to; y++ {
		t.erase(t.row(y), 0, t.width)
	}
}

// erase leaves a part of a row empty, with the background that is set.
func (t *Terminal) erase(row []Cell, from, to int) {
	from, to = min(from, t.width), min(to, t.width)
	t.part(row, from)
	t.part(row, to)
	for x := from; x < to; x++ {
		row[x] = Cell{Style: Style{Background: t.style.Background}}
	}
}

// change edits the screen at the cursor: n cells or lines, or the part that kind says.
func (t *Terminal) change(final byte, n, kind int) {
	row := t.row(t.y)
	t.pending = false
	switch final {
	case '@':
		n = min(n, t.width-t.x)
		t.part(row, t.x)
		copy(row[t.x+n:], row[t.x:])
		t.erase(row, t.x, t.x+n)
		t.part(row, t.width)
	case 'P':
		n = min(n, t.width-t.x)
		t.part(row, t.x)
		t.part(row, t.x+n)
		copy(row[t.x:], row[t.x+n:])
		t.erase(row, t.width-n, t.width)
	case 'X':
		t.erase(row, t.x, t.x+n)
	case 'J', 'K':
		t.eraseFrom(final, kind)
	case 'L', 'M':
		if t.y < t.top || t.y >= t.bottom {
			return
		}
		if t.x = 0; final == 'L' {
			t.addLines(t.y, n)
		} else {
			t.takeLines(t.y, n)
		}
	case 'S':
		t.scrollUp(n)
	case 'T':
		t.addLines(t.top, n)
	case 'b':
		if t.last != 0 {
			for range min(n, t.width) {
				t.print(t.last)
			}
		}
	}
}

// eraseFrom erases the screen (J) or the line (K) from the cursor on, up to it, or all.
func (t *Terminal) eraseFrom(final byte, kind int) {
	if kind == 3 && final == 'J' {
		t.history = nil
		return
	}
	from, to := 0, t.width
	switch kind {
	case 0:
		from = t.x
	case 1:
		to = t.x + 1
	case 2:
	default:
		return
	}
	t.erase(t.row(t.y), from, to)
	if final == 'K' {
		return
	}
	if kind != 1 {
		t.eraseLines(t.y+1, t.height)
	}
	if kind != 0 {
		t.eraseLines(0, t.y)
	}
}
