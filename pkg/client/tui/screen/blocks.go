package screen

import (
	"bytes"
	"image"
	"strconv"
)

// blocks draws with upper half blocks: two pixels a cell, one above the other.
type blocks struct {
	colours bool
	shown   []cell
	layout  Layout
}

type rgb [3]byte

type cell struct{ upper, lower rgb }

func (b *blocks) Forget() { b.shown = nil }

func (b *blocks) Clear(*bytes.Buffer) {}

// Paint draws the cells that differ from those that are there.
func (b *blocks) Paint(out *bytes.Buffer, picture *image.RGBA, layout Layout) {
	columns, rows := layout.Cells.Dx(), layout.Cells.Dy()
	all := layout != b.layout || len(b.shown) != columns*rows
	if all {
		b.layout, b.shown = layout, make([]cell, columns*rows)
	}
	small := scale(picture, image.Pt(columns, rows*2))
	var have cell
	styled, next := false, image.Pt(-1, -1)
	for y := range rows {
		upper, lower := small.Pix[2*y*small.Stride:], small.Pix[(2*y+1)*small.Stride:]
		for x := range columns {
			c := cell{rgb(upper[x*4 : x*4+3]), rgb(lower[x*4 : x*4+3])}
			if shown := &b.shown[y*columns+x]; !all && *shown == c {
				continue
			} else {
				*shown = c
			}
			if at := image.Pt(x, y); at != next {
				moveTo(out, layout.Cells.Min.X+x, layout.Cells.Min.Y+y)
			}
			next = image.Pt(x+1, y)
			if !styled || have.upper != c.upper {
				b.colour(out, "38", c.upper)
			}
			if !styled || have.lower != c.lower {
				b.colour(out, "48", c.lower)
			}
			have, styled = c, true
			out.WriteString("▀")
		}
		next = image.Pt(-1, -1) // what the cursor does at the end of a line is the terminal's to say
	}
	if styled {
		out.WriteString("\x1b[0m")
	}
}

func (b *blocks) colour(out *bytes.Buffer, layer string, c rgb) {
	out.WriteString("\x1b[" + layer)
	if b.colours {
		out.WriteString(";2;" + strconv.Itoa(int(c[0])) + ";" + strconv.Itoa(int(c[1])) + ";" +
			strconv.Itoa(int(c[2])) + "m")
		return
	}
	out.WriteString(";5;" + strconv.Itoa(index256(c)) + "m")
}

// index256 returns the nearest of xterm's 256 colours: its cube of 6×6×6 or its 24 greys.
func index256(c rgb) int {
	level := func(v byte) int {
		switch {
		case v < 48:
			return 0
		case v < 115:
			return 1
		}
		return (int(v) - 35) / 40
	}
	steps := [6]int{0, 95, 135, 175, 215, 255}
	r, g, b := level(c[0]), level(c[1]), level(c[2])
	grey := (int(c[0]) + int(c[1]) + int(c[2])) / 3
	step := min(23, max(0, (grey-3)/10))
	far := func(r, g, b int) int {
		dr, dg, db := r-int(c[0]), g-int(c[1]), b-int(c[2])
		return dr*dr + dg*dg + db*db
	}
	if v := 8 + 10*step; far(v, v, v) < far(steps[r], steps[g], steps[b]) {
		return 232 + step
	}
	return 16 + 36*r + 6*g + b
}
