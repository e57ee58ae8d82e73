// Package screen draws pictures in a terminal: with kitty's graphics protocol, with sixels, or with half blocks, which
// every terminal with colours shows. It writes escape sequences to a writer and knows neither where pictures come
// from nor who reads the keys.
//
//	answers := screen.Ask …                 what the terminal can, by its own word
//	painter := screen.New(answers.Best())   a painter of that kind
//	painter.Paint(w, picture, layout)       draws what has changed since the last call
//
// The encoders for kitty and sixel are our own. Those of github.com/charmbracelet/x/ansi v0.11.8 were tried on frames
// of 1024 × 768: both read each pixel through the interface image.Image, with 1.6 million allocations a frame (ours:
// 150 for kitty, 2,100 to 12,000 for sixel). Measured on one busy core, ours and theirs in one run: sixel 0.25 s and
// 2.0 s for a desktop, 0.01 s and 9.0 s for a picture of many colours, for which it searches a palette; kitty 0.16 s
// and 2.3 s, 1.5 s and 4.4 s. Theirs makes kitty's desktop frame smaller (273 kB, ours 433 kB), since it does not
// compress for speed.
package screen

import (
	"bytes"
	"fmt"
	"image"
)

// Kind is a way to draw.
type Kind string

// The ways to draw, best first.
const (
	Kitty  Kind = "kitty"
	Sixel  Kind = "sixel"
	Blocks Kind = "blocks"
)

// Kinds are all of them.
var Kinds = []Kind{Kitty, Sixel, Blocks}

// Window is a terminal's size.
type Window struct {
	Columns, Rows int
	// CellWidth and CellHeight are a character's, pixels.
	CellWidth, CellHeight int
}

// Layout is where in a window a picture goes.
type Layout struct {
	// Cells is the part of the window, columns and rows from 0 on.
	Cells image.Rectangle
	// Size is the picture's there, in pixels of the terminal.
	Size image.Point
}

// Fit places a picture in a window, in the middle and as large as its proportions allow. The window's last rows can
// be kept for other things.
func Fit(w Window, picture image.Point, keep int) Layout {
	columns, rows := max(1, w.Columns), max(1, w.Rows-keep)
	if picture.X <= 0 || picture.Y <= 0 {
		return Layout{}
	}
	width, height := columns*w.CellWidth, rows*w.CellHeight
	if width*picture.Y > height*picture.X {
		width = max(1, height*picture.X/picture.Y)
	} else {
		height = max(1, width*picture.Y/picture.X)
	}
	across := min(columns, (width+w.CellWidth-1)/w.CellWidth)
	down := min(rows, (height+w.CellHeight-1)/w.CellHeight)
	x, y := (columns-across)/2, (rows-down)/2
	return Layout{Cells: image.Rect(x, y, x+across, y+down), Size: image.Pt(width, height)}
}

// At returns the picture's pixel below the middle of a cell, and whether the cell shows one.
func (l Layout) At(column, row int, picture image.Point) (image.Point, bool) {
	p := image.Pt(column, row)
	if !p.In(l.Cells) {
		return image.Point{}, false
	}
	d := p.Sub(l.Cells.Min)
	return image.Pt(min(picture.X-1, (2*d.X+1)*picture.X/(2*l.Cells.Dx())),
		min(picture.Y-1, (2*d.Y+1)*picture.Y/(2*l.Cells.Dy()))), true
}

// Painter draws pictures one after the other in the same place.
type Painter interface {
	// Paint appends what shows the picture, as far as it is not there yet.
	Paint(out *bytes.Buffer, picture *image.RGBA, layout Layout)
	// Forget is to be called when the terminal has been cleared or resized.
	Forget()
	// Clear appends what takes the picture away, if clearing the terminal does not.
	Clear(out *bytes.Buffer)
}

// New makes a painter. colours is for Blocks: whether the terminal has all colours, or 256.
func New(kind Kind, colours bool) Painter {
	switch kind {
	case Kitty:
		return &kitty{}
	case Sixel:
		return &sixel{}
	}
	return &blocks{colours: colours}
}

// scale makes a picture of another size; where it is smaller, a pixel is the mean of those it stands for.
func scale(picture *image.RGBA, size image.Point) *image.RGBA {
	from := picture.Rect.Size()
	if size == from {
		return picture
	}
	out := image.NewRGBA(image.Rectangle{Max: size})
	for y := range size.Y {
		top := y * from.Y / size.Y
		bottom := max(top+1, (y+1)*from.Y/size.Y)
		for x := range size.X {
			left := x * from.X / size.X
			right := max(left+1, (x+1)*from.X/size.X)
			var r, g, b int
			for sy := top; sy < bottom; sy++ {
				row := picture.Pix[sy*picture.Stride+left*4 : sy*picture.Stride+right*4]
				for i := 0; i < len(row); i += 4 {
					r, g, b = r+int(row[i]), g+int(row[i+1]), b+int(row[i+2])
				}
			}
			n := (bottom - top) * (right - left)
			at := out.PixOffset(x, y)
			out.Pix[at], out.Pix[at+1], out.Pix[at+2], out.Pix[at+3] = byte(r/n), byte(g/n), byte(b/n), 0xff
		}
	}
	return out
}

// moveTo puts the cursor into a cell.
func moveTo(out *bytes.Buffer, column, row int) { fmt.Fprintf(out, "\x1b[%d;%dH", row+1, column+1) }
