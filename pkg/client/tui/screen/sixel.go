package screen

import (
	"bytes"
	"fmt"
	"image"
	"slices"
	"strconv"
)

// sixel draws with DEC's graphics: bands of six rows, each colour of a band after the other.
type sixel struct {
	shown  []byte
	layout Layout
}

func (s *sixel) Forget() { s.shown = nil }

func (s *sixel) Clear(*bytes.Buffer) {}

// Paint draws the whole picture, unless it is there.
func (s *sixel) Paint(out *bytes.Buffer, picture *image.RGBA, layout Layout) {
	small := scale(picture, layout.Size)
	if layout == s.layout && bytes.Equal(small.Pix, s.shown) {
		return
	}
	s.layout, s.shown = layout, slices.Clone(small.Pix)
	moveTo(out, layout.Cells.Min.X, layout.Cells.Min.Y)
	writeSixel(out, small)
}

// maxColours is how many a terminal has for one picture.
const maxColours = 256

// writeSixel encodes a picture.
func writeSixel(out *bytes.Buffer, picture *image.RGBA) {
	size := picture.Rect.Size()
	colours, of := reduce(picture)
	fmt.Fprintf(out, "\x1bP0;1q\"1;1;%d;%d", size.X, size.Y)
	for i, c := range colours {
		percent := func(v byte) int { return (int(v)*100 + 127) / 255 }
		fmt.Fprintf(out, "#%d;2;%d;%d;%d", i, percent(c[0]), percent(c[1]), percent(c[2]))
	}
	bits := make([]byte, len(colours)*size.X)
	used := make([]bool, len(colours))
	for top := 0; top < size.Y; top += 6 {
		clear(bits)
		clear(used)
		for y := top; y < min(top+6, size.Y); y++ {
			for x := range size.X {
				c := int(of[y*size.X+x])
				bits[c*size.X+x] |= 1 << (y - top)
				used[c] = true
			}
		}
		first := true
		for c := range colours {
			if !used[c] {
				continue
			}
			if !first {
				out.WriteByte('$')
			}
			first = false
			out.WriteByte('#')
			out.WriteString(strconv.Itoa(c))
			writeRuns(out, bits[c*size.X:(c+1)*size.X])
		}
		out.WriteByte('-')
	}
	out.WriteString("\x1b\\")
}

// writeRuns writes the columns of one colour in a band; equal ones as a count.
func writeRuns(out *bytes.Buffer, columns []byte) {
	for len(columns) > 0 {
		n := 1
		for n < len(columns) && columns[n] == columns[0] {
			n++
		}
		if n == len(columns) && columns[0] == 0 {
			return
		}
		if n > 3 {
			out.WriteByte('!')
			out.WriteString(strconv.Itoa(n))
			out.WriteByte('?' + columns[0])
		} else {
			for range n {
				out.WriteByte('?' + columns[0])
			}
		}
		columns = columns[n:]
	}
}

// reduce finds at most 256 colours for a picture: its own, if it has no more, or else a cube of 6×7×6.
func reduce(picture *image.RGBA) ([]rgb, []byte) {
	size := picture.Rect.Size()
	of := make([]byte, size.X*size.Y)
	index := map[rgb]byte{}
	var colours []rgb
	for y := range size.Y {
		for x := range size.X {
			c := rgb(picture.Pix[y*picture.Stride+x*4:][:3])
			i, known := index[c]
			if !known {
				if len(colours) == maxColours {
					return cube(picture)
				}
				i = byte(len(colours))
				index[c] = i
				colours = append(colours, c)
			}
			of[y*size.X+x] = i
		}
	}
	return colours, of
}

func cube(picture *image.RGBA) ([]rgb, []byte) {
	size := picture.Rect.Size()
	var colours []rgb
	for r := range 6 {
		for g := range 7 {
			for b := range 6 {
				colours = append(colours, rgb{byte(r * 255 / 5), byte(g * 255 / 6), byte(b * 255 / 5)})
			}
		}
	}
	of := make([]byte, size.X*size.Y)
	for y := range size.Y {
		for x := range size.X {
			p := picture.Pix[y*picture.Stride+x*4:]
			near := func(v byte, steps int) int { return (int(v)*(steps-1) + 127) / 255 }
			of[y*size.X+x] = byte(near(p[0], 6)*42 + near(p[1], 7)*6 + near(p[2], 6))
		}
	}
	return colours, of
}
