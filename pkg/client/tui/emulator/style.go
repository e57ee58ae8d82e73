package emulator

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Colour is a colour of text: none, one of the terminal's 256, or red, green and blue.
type Colour uint32

const (
	indexed Colour = 1 << 24
	rgb     Colour = 2 << 24
)

// Attributes are how text looks besides its colours.
type Attributes uint8

// The attributes. Blinking text and text that cannot be seen are shown as any other.
const (
	Bold Attributes = 1 << iota
	Faint
	Italic
	Underline
	Reverse
	Struck
)

// Style is how a cell looks.
type Style struct {
	Foreground, Background Colour
	Attributes             Attributes
}

var attributes = []struct {
	of      Attributes
	on, off int
}{{Bold, 1, 22}, {Faint, 2, 22}, {Italic, 3, 23}, {Underline, 4, 24}, {Reverse, 7, 27}, {Struck, 9, 29}}

// set does what a sequence for colours and attributes says.
func (s *Style) set(params ansi.Params) {
	if len(params) == 0 {
		*s = Style{}
	}
	for i := 0; i < len(params); i++ {
		n := params[i].Param(0)
		switch {
		case n == 0:
			*s = Style{}
		case n == 21:
			s.Attributes |= Underline
		case n >= 30 && n <= 37:
			s.Foreground = indexed | Colour(n-30)
		case n >= 90 && n <= 97:
			s.Foreground = indexed | Colour(n-90+8)
		case n >= 40 && n <= 47:
			s.Background = indexed | Colour(n-40)
		case n >= 100 && n <= 107:
			s.Background = indexed | Colour(n-100+8)
		case n == 39:
			s.Foreground = 0
		case n == 49:
			s.Background = 0
		case n == 38, n == 48, n == 58:
			c, used := colour(params[i:])
			if used == 0 {
				return
			}
			i += used - 1
			switch n {
			case 38:
				s.Foreground = c
			case 48:
				s.Background = c
			}
		}
		for _, a := range attributes {
			switch n {
			case a.on:
				s.Attributes |= a.of
			case a.off:
				s.Attributes &^= a.of
			}
		}
		if n == 4 && params[i].HasMore() && i+1 < len(params) { // 4:0 is none, 4:3 a wave
			if i++; params[i].Param(0) == 0 {
				s.Attributes &^= Underline
			}
		}
	}
}

// colour reads 38;5;n, 38;2;r;g;b, and the same with colons, where r may come after a colour space. used is 0 where it
// is none.
func colour(params ansi.Params) (c Colour, used int) {
	at := func(i int) (int, bool) {
		if i >= len(params) {
			return 0, false
		}
		n := params[i].Param(0)
		return n, n >= 0 && n <= 255
	}
	switch kind, _ := at(1); kind {
	case 5:
		if n, ok := at(2); ok {
			return indexed | Colour(n), 3
		}
	case 2:
		first := 2
		if params[0].HasMore() && len(params) > 5 && params[1].HasMore() && params[4].HasMore() {
			first = 3
		}
		r, okR := at(first)
		g, okG := at(first + 1)
		b, okB := at(first + 2)
		if okR && okG && okB {
			return rgb | Colour(r<<16|g<<8|b), first + 3
		}
	}
	return 0, 0
}

// codes returns the SGR sequence that makes text look so, after a reset.
func (s Style) codes(plain bool) string {
	if plain {
		s.Foreground, s.Background = 0, 0
	}
	if s == (Style{}) {
		return ""
	}
	var codes []string
	for _, a := range attributes {
		if s.Attributes&a.of != 0 {
			codes = append(codes, fmt.Sprint(a.on))
		}
	}
	add := func(c Colour, base int) {
		switch n := int(c & 0xffffff); c &^ 0xffffff {
		case indexed:
			switch {
			case n < 8:
				codes = append(codes, fmt.Sprint(base+n))
			case n < 16:
				codes = append(codes, fmt.Sprint(base+60+n-8))
			default:
				codes = append(codes, fmt.Sprintf("%d;5;%d", base+8, n))
			}
		case rgb:
			codes = append(codes, fmt.Sprintf("%d;2;%d;%d;%d", base+8, n>>16, n>>8&0xff, n&0xff))
		}
	}
	add(s.Foreground, 30)
	add(s.Background, 40)
	return "\x1b[" + strings.Join(codes, ";") + "m"
}

// Lines returns how many lines there are: those that have left the main screen at the top, and the screen's.
func (t *Terminal) Lines() int {
	if t.alternate {
		return t.height
	}
	return len(t.history) + t.height
}

// Line draws a line, 0 being the oldest, exactly width cells of it from a column on. plain leaves colours out. The
// cursor is shown in reverse, where it is in that line and shown at all.
func (t *Terminal) Line(n, from, width int, plain, cursor bool) string {
	past := t.Lines() - t.height
	var row []Cell
	at := -1
	if n < past {
		row = t.history[n]
	} else {
		row = t.row(n - past)
		if cursor && n-past == t.y && !t.hidden {
			at = t.x
		}
	}
	text, sure := draw(row, from, width, at, plain, false)
	if !sure {
		text, _ = draw(row, from, width, at, plain, true)
	}
	return text
}

// draw makes text of cells; sure is whether every terminal takes that for as wide as we do. Only ascii leaves nothing
// else.
func draw(row []Cell, from, width, cursor int, plain, ascii bool) (text string, sure bool) {
	var b, bare strings.Builder
	style := Style{}
	for x := from; x < from+width; x++ {
		c := Cell{}
		if x < len(row) {
			c = row[x]
		}
		switch {
		case c.Wide && x+1 == from+width, c.Right && x == from, ascii && (c.Wide || c.Right || len(c.Text) > 1):
			c.Text, c.Wide = "?", false
		case c.Right:
			continue
		case c.Text == "":
			c.Text = " "
		}
		if x == cursor {
			c.Style.Attributes ^= Reverse
		}
		if c.Style != style {
			if style.codes(plain) != "" {
				b.WriteString("\x1b[m")
			}
			b.WriteString(c.Style.codes(plain))
			style = c.Style
		}
		b.WriteString(c.Text)
		bare.WriteString(c.Text)
	}
	if style.codes(plain) != "" {
		b.WriteString("\x1b[m")
	}
	return b.String(), ansi.StringWidth(bare.String()) == width
}
