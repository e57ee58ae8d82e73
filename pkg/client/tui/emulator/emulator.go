// Package emulator is a terminal without a window: it takes what a guest writes to its serial console, and says how a
// screen of that looks. The guest is not trusted. Whatever it writes, the screen keeps its size, each cell holds a few
// characters that a real terminal does not obey, a sequence costs no more than erasing the screen, and answers are few
// and short.
//
//	guest ──► Write ──► parser ──► cells ──► Line, as text with colours of our own making
//	                       └─ Replies ──► guest: where the cursor is, what kind of terminal this is
//
// It knows what an xterm does as far as programs on serial lines use it: colours, scroll regions, the alternate screen,
// line drawing. A Terminal is for one goroutine.
//
// hinshun/vt10x (of 2022-03-01) was tried with what a hostile guest may write: CSI 2147483647 I, 13 bytes, keeps it
// busy for more than two minutes; it answers every question, with 600 kB to 100,000 of them; REP does nothing; and
// U+009B, which a terminal may obey, is kept in a cell. charmbracelet/x/vt was read, not run: it collects text that is
// not ASCII into one buffer without a bound, and a cell takes all combining characters of it.
package emulator

import (
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/ansi/parser"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

// Bounds of what a guest can have kept.
const (
	maxSide     = 1000 // cells
	maxHistory  = 500  // lines, and at times twice as many
	maxReplies  = 256  // bytes that were not taken yet
	maxCombined = 4    // characters above or below another
	maxSequence = 4096 // bytes of a title and the like; none of them is used
)

// Terminal is a screen, its cursor, and the lines that have left it at the top.
type Terminal struct {
	width, height int
	parser        *ansi.Parser

	screens   [2]screen // the main one, and the one for editors and the like
	alternate bool
	history   [][]Cell

	cursor
	saved [2]cursor
	// top and bottom are the first line that scrolls and the one after the last.
	top, bottom int
	tabs        []bool
	// last is what REP repeats.
	last rune

	noWrap, insert, newline bool
	hidden                  bool
	applicationCursor       bool
	bracketedPaste          bool

	replies []byte
}

// cursor is where the next character goes, and how it looks.
type cursor struct {
	x, y int
	// pending is that the last column was written: the next character begins a line.
	pending bool
	origin  bool
	style   Style
	// graphics are which of the two character sets draws lines; shifted selects the second.
	graphics [2]bool
	shifted  int
}

// screen is rows of cells.
type screen [][]Cell

// Cell is one place of the screen.
type Cell struct {
	// Text is a character with what combines with it; "" is a space, or the right half of the one before where Right is
	// set.
	Text  string
	Wide  bool
	Right bool
	Style Style
}

// New makes an empty screen; sizes are cells.
func New(width, height int) *Terminal {
	t := &Terminal{}
	t.parser = ansi.NewParser()
	t.parser.SetParamsSize(parser.MaxParamsSize)
	t.parser.SetDataSize(maxSequence)
	t.parser.SetHandler(ansi.Handler{Print: t.print, Execute: t.execute, HandleCsi: t.control, HandleEsc: t.escape})
	t.width, t.height = bounded(width), bounded(height)
	t.Reset()
	return t
}

func bounded(side int) int { return max(1, min(side, maxSide)) }

// Reset makes the terminal as it was when it was made. Its size stays.
func (t *Terminal) Reset() {
	t.parser.Reset()
	t.clear()
	t.history, t.replies = nil, nil
}

// clear does what a guest can ask for of Reset.
func (t *Terminal) clear() {
	for i := range t.screens {
		t.screens[i] = blank(t.width, t.height)
	}
	t.alternate, t.cursor, t.saved = false, cursor{}, [2]cursor{}
	t.top, t.bottom, t.last = 0, t.height, 0
	t.noWrap, t.insert, t.newline, t.hidden, t.applicationCursor, t.bracketedPaste = false, false, false, false,
		false, false
	t.tabs = stops(t.width)
}

func stops(width int) []bool {
	tabs := make([]bool, width)
	for i := 8; i < width; i += 8 {
		tabs[i] = true
	}
	return tabs
}

func blank(width, height int) screen {
	s := make(screen, height)
	for i := range s {
		s[i] = make([]Cell, width)
	}
	return s
}

// Size returns the width and height, cells.
func (t *Terminal) Size() (width, height int) { return t.width, t.height }

// Write takes what the guest wrote. It never fails.
func (t *Terminal) Write(data []byte) (int, error) {
	for _, b := range data {
		t.parser.Advance(b)
	}
	return len(data), nil
}

// Replies returns the terminal's answers to the guest since the last call.
func (t *Terminal) Replies() []byte {
	out := t.replies
	t.replies = nil
	return out
}

func (t *Terminal) reply(text string) {
	if len(t.replies)+len(text) <= maxReplies {
		t.replies = append(t.replies, text...)
	}
}

// Cursor returns where the next character goes, and whether that is to be seen.
func (t *Terminal) Cursor() (x, y int, seen bool) { return t.x, t.y, !t.hidden }

// Resize changes the size. Lines that no longer fit above the cursor go to the history; what is cut off at the right is
// lost.
func (t *Terminal) Resize(width, height int) {
	width, height = bounded(width), bounded(height)
	if width == t.width && height == t.height {
		return
	}
	current := t.current()
	for i := range t.screens {
		s := &t.screens[i]
		if s == current {
			if extra := t.y - height + 1; extra > 0 {
				if !t.alternate {
					t.remember((*s)[:extra])
				}
				*s, t.y = (*s)[extra:], t.y-extra
			}
		}
		fitted := blank(width, height)
		for y := range min(height, len(*s)) {
			copy(fitted[y], (*s)[y])
			if last := &fitted[y][width-1]; last.Wide {
				*last = Cell{}
			}
		}
		*s = fitted
	}
	t.width, t.height, t.top, t.bottom, t.tabs = width, height, 0, height, stops(width)
	t.x, t.y, t.pending = min(t.x, width-1), min(t.y, height-1), false
	for i := range t.saved {
		t.saved[i].x, t.saved[i].y = min(t.saved[i].x, width-1), min(t.saved[i].y, height-1)
	}
}

func (t *Terminal) current() *screen {
	if t.alternate {
		return &t.screens[1]
	}
	return &t.screens[0]
}

func (t *Terminal) row(y int) []Cell { return (*t.current())[y] }

// remember keeps lines that leave the screen at the top.
func (t *Terminal) remember(lines screen) {
	t.history = append(t.history, lines...)
	if len(t.history) > 2*maxHistory { // not with every line
		t.history = append(t.history[:0:0], t.history[len(t.history)-maxHistory:]...)
	}
}

// drawn are the characters of the set for drawing lines, from '_' on.
var drawn = []rune(" ◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")

// print puts a character where the cursor is.
func (t *Terminal) print(r rune) {
	if printable.Hostile(r) {
		return
	}
	if i := int(r - '_'); t.graphics[t.shifted] && i >= 0 && i < len(drawn) {
		r = drawn[i]
	}
	width := 1
	if r > '~' {
		width = ansi.StringWidth(string(r))
	}
	if width == 0 {
		t.combine(r)
		return
	}
	t.put(r, min(width, 2))
}

func (t *Terminal) put(r rune, width int) {
	if width > t.width {
		return
	}
	if t.pending && !t.noWrap {
		t.x = 0
		t.lineFeed()
	}
	t.pending = false
	if t.x+width > t.width {
		if t.noWrap {
			t.x = t.width - width
		} else {
			t.x = 0
			t.lineFeed()
		}
	}
	row := t.row(t.y)
	if t.insert {
		t.part(row, t.x)
		copy(row[t.x+width:], row[t.x:])
		t.part(row, t.width)
	}
	t.part(row, t.x)
	t.part(row, t.x+width)
	row[t.x] = Cell{Text: string(r), Wide: width == 2, Style: t.style}
	if width == 2 {
		row[t.x+1] = Cell{Right: true, Style: t.style}
	}
	t.last = r
	if t.x += width; t.x >= t.width {
		t.x, t.pending = t.width-1, true
	}
}

// part takes a wide character away that stands on both sides of a column.
func (t *Terminal) part(row []Cell, x int) {
	if x > 0 && x < len(row) && row[x].Right {
		row[x-1], row[x] = Cell{}, Cell{}
	}
	if x == len(row) && row[x-1].Wide {
		row[x-1] = Cell{}
	}
}

// combine adds to the character before the cursor.
func (t *Terminal) combine(r rune) {
	// what they make of two characters, not every terminal does
	if r == 0x200d || unicode.Is(unicode.Variation_Selector, r) {
		return
	}
	x := t.x - 1
	if t.pending {
		x = t.x
	}
	if x < 0 {
		return
	}
	row := t.row(t.y)
	if row[x].Right {
		x--
	}
	if c := &row[x]; c.Text != "" && len([]rune(c.Text)) <= maxCombined {
		c.Text += string(r)
	}
}
