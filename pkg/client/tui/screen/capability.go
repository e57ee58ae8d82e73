package screen

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Questions asks a terminal what it can: kitty's graphics and keyboard, the sizes of its cells and its window, and at
// last its attributes, which every terminal answers, so that the end is known.
const Questions = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\" + "\x1b[?u" + "\x1b[16t" + "\x1b[14t" + "\x1b[c"

// Answers has the answers of a terminal.
type Answers struct {
	// Complete says that the last question has been answered.
	Complete bool
	// Graphics and Sixels are the ways to draw that it knows, Keyboard is kitty's keyboard protocol.
	Graphics, Sixels, Keyboard bool
	// CellWidth and CellHeight are a character's, WindowWidth and WindowHeight the window's, pixels; 0 is not known.
	CellWidth, CellHeight     int
	WindowWidth, WindowHeight int
}

// patterns are compiled on first use: virtctl has to start quickly.
var patterns = sync.OnceValue(func() (p struct{ keyboard, size, attributes *regexp.Regexp }) {
	p.keyboard = regexp.MustCompile(`\x1b\[\?\d+u`)
	p.size = regexp.MustCompile(`\x1b\[([46]);(\d+);(\d+)t`)
	p.attributes = regexp.MustCompile(`\x1b\[\?([\d;]*)c`)
	return p
})

// maxSide bounds what a terminal may say of its size, pixels.
const maxSide = 1 << 15

// ReadAnswers finds the answers in what a terminal has sent so far.
func ReadAnswers(sent []byte) Answers {
	a := Answers{Graphics: bytes.Contains(sent, []byte("\x1b_Gi=31;OK")), Keyboard: patterns().keyboard.Match(sent)}
	for _, m := range patterns().size.FindAllSubmatch(sent, -1) {
		height, err1 := strconv.Atoi(string(m[2]))
		width, err2 := strconv.Atoi(string(m[3]))
		if err1 != nil || err2 != nil || width > maxSide || height > maxSide {
			continue
		}
		if m[1][0] == '6' {
			a.CellWidth, a.CellHeight = width, height
		} else {
			a.WindowWidth, a.WindowHeight = width, height
		}
	}
	if m := patterns().attributes.FindSubmatch(sent); m != nil {
		a.Complete = true
		a.Sixels = slices.Contains(strings.Split(string(m[1]), ";"), "4")
	}
	return a
}

// Best returns the best way to draw.
func (a Answers) Best() Kind {
	switch {
	case a.Graphics:
		return Kitty
	case a.Sixels:
		return Sixel
	}
	return Blocks
}

// Window returns the terminal's size, in the columns and rows that the system knows and the pixels that the terminal
// does. Half blocks make pixels of their own, twice as many down as rows.
func (a Answers) Window(kind Kind, columns, rows int) Window {
	w := Window{Columns: columns, Rows: rows, CellWidth: a.CellWidth, CellHeight: a.CellHeight}
	switch {
	case kind == Blocks:
		w.CellWidth, w.CellHeight = 1, 2
	case w.CellWidth <= 0 || w.CellHeight <= 0:
		// Small, so that a picture does not reach beyond the window.
		w.CellWidth, w.CellHeight = 6, 12
		if a.WindowWidth >= columns && a.WindowHeight >= rows && columns > 0 && rows > 0 {
			w.CellWidth, w.CellHeight = a.WindowWidth/columns, a.WindowHeight/rows
		}
	}
	return w
}

// AllColours reports whether the environment says that the terminal shows all colours and not just 256.
func AllColours(getenv func(string) string) bool {
	switch getenv("COLORTERM") {
	case "truecolor", "24bit":
		return true
	}
	t := getenv("TERM")
	return strings.HasSuffix(t, "-direct") || strings.Contains(t, "kitty") || strings.Contains(t, "ghostty") ||
		getenv("WT_SESSION") != ""
}
