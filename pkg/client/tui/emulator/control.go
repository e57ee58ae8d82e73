package emulator

import (
	"fmt"

	"github.com/charmbracelet/x/ansi"
)

// execute does what a control character says.
func (t *Terminal) execute(b byte) {
	switch b {
	case '\b':
		t.to(t.x-1, t.y)
	case '\t':
		t.tab(1)
	case '\n', '\v', '\f':
		t.lineFeed()
		if t.newline {
			t.x = 0
		}
	case '\r':
		t.x, t.pending = 0, false
	case 0x0e, 0x0f:
		t.shifted = int(0x0f - b)
	case 0x84:
		t.lineFeed()
	case 0x85:
		t.x = 0
		t.lineFeed()
	case 0x88:
		t.tabs[t.x] = true
	case 0x8d:
		t.reverseFeed()
	}
}

// escape does what an escape sequence without parameters says.
func (t *Terminal) escape(cmd ansi.Cmd) {
	switch i, f := cmd.Intermediate(), cmd.Final(); {
	case i == '(' || i == ')':
		t.graphics[i-'('] = f == '0'
	case i == '#' && f == '8':
		for y := range t.height {
			for x := range t.width {
				t.row(y)[x] = Cell{Text: "E"}
			}
		}
	case i != 0:
	case f == '7':
		t.save()
	case f == '8':
		t.restore()
	case f == 'D':
		t.lineFeed()
	case f == 'E':
		t.x = 0
		t.lineFeed()
	case f == 'H':
		t.tabs[t.x] = true
	case f == 'M':
		t.reverseFeed()
	case f == 'c':
		t.clear()
	}
}

func (t *Terminal) index() int {
	if t.alternate {
		return 1
	}
	return 0
}

func (t *Terminal) save() { t.saved[t.index()] = t.cursor }

func (t *Terminal) restore() { t.cursor = t.saved[t.index()] }

// control does what a control sequence says.
func (t *Terminal) control(cmd ansi.Cmd, params ansi.Params) {
	// number is a parameter, at least one and at most as much as a screen has.
	number := func(i int) int {
		n, _, _ := params.Param(i, 1)
		if n < 0 {
			n = maxSide
		}
		return max(1, min(n, maxSide))
	}
	kind, _, _ := params.Param(0, 0)
	switch cmd.Prefix() {
	case '?':
		t.private(cmd, params)
		return
	case '>':
		if cmd.Final() == 'c' && cmd.Intermediate() == 0 && kind == 0 {
			t.reply("\x1b[>0;0;0c")
		}
		return
	case 0:
	default:
		return
	}
	if cmd.Intermediate() != 0 {
		if cmd.Intermediate() == '!' && cmd.Final() == 'p' {
			t.soft()
		}
		return
	}
	switch cmd.Final() {
	case '@', 'P', 'X', 'J', 'K', 'L', 'M', 'S', 'T', 'b':
		t.change(cmd.Final(), number(0), kind)
	case 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'Z', '`', 'a', 'd', 'e', 'f':
		t.move(cmd.Final(), number(0), number(1))
	case 'g':
		switch kind {
		case 0:
			t.tabs[t.x] = false
		case 3:
			clear(t.tabs)
		}
	case 'h', 'l':
		for i := range params {
			switch n, _, _ := params.Param(i, 0); n {
			case 4:
				t.insert = cmd.Final() == 'h'
			case 20:
				t.newline = cmd.Final() == 'h'
			}
		}
	case 'm':
		t.style.set(params)
	case 'r':
		t.region(params)
	case 's':
		t.save()
	case 'u':
		t.restore()
	case 'c':
		if kind == 0 {
			t.reply("\x1b[?6c")
		}
	case 'n':
		t.report(kind)
	}
}

// move does what a control sequence that moves the cursor says, by its last byte and its two numbers.
func (t *Terminal) move(final byte, n, second int) {
	switch final {
	case 'A':
		t.up(n)
	case 'B', 'e':
		t.down(n)
	case 'C', 'a':
		t.to(t.x+n, t.y)
	case 'D':
		t.to(t.x-n, t.y)
	case 'E':
		t.down(n)
		t.x = 0
	case 'F':
		t.up(n)
		t.x = 0
	case 'G', '`':
		t.to(n-1, t.y)
	case 'H', 'f':
		t.address(second-1, n-1)
	case 'd':
		t.address(t.x, n-1)
	case 'I':
		t.tab(n)
	case 'Z':
		t.tab(-n)
	}
}

func (t *Terminal) report(kind int) {
	switch kind {
	case 5:
		t.reply("\x1b[0n")
	case 6:
		y := t.y
		if t.origin {
			y -= t.top
		}
		t.reply(fmt.Sprintf("\x1b[%d;%dR", y+1, t.x+1))
	}
}

// soft puts the modes right, and leaves what is written.
func (t *Terminal) soft() {
	x, y := t.x, t.y
	t.cursor = cursor{x: x, y: y}
	t.top, t.bottom = 0, t.height
	t.noWrap, t.insert, t.newline, t.hidden, t.applicationCursor, t.bracketedPaste = false, false, false, false,
		false, false
}

// private sets and resets the modes of xterms.
func (t *Terminal) private(cmd ansi.Cmd, params ansi.Params) {
	f := cmd.Final()
	if cmd.Intermediate() != 0 || f != 'h' && f != 'l' {
		return
	}
	on := f == 'h'
	for i := range params {
		switch n, _, _ := params.Param(i, 0); n {
		case 1:
			t.applicationCursor = on
		case 6:
			t.origin = on
			t.address(0, 0)
		case 7:
			t.noWrap = !on
		case 25:
			t.hidden = !on
		case 47, 1047, 1049:
			t.switchTo(on, n == 1049)
		case 1048:
			if on {
				t.save()
			} else {
				t.restore()
			}
		case 2004:
			t.bracketedPaste = on
		}
	}
}

// switchTo shows the alternate screen, empty, or the main one as it was left.
func (t *Terminal) switchTo(alternate, keep bool) {
	if alternate == t.alternate {
		return
	}
	if alternate && keep {
		t.save()
	}
	t.alternate = alternate
	t.top, t.bottom = 0, t.height
	if alternate {
		t.screens[1] = blank(t.width, t.height)
	} else if keep {
		t.restore()
	}
}
