package screen

import (
	"bytes"
	"image"
	"image/draw"
	"strconv"
	"strings"
)

// Thumbnail draws a picture as text, lines of columns cells, for a place in a text that others draw: by half blocks in
// 24 bits of colour, or without colours by the characters of a ramp from dark to light.
func Thumbnail(picture image.Image, columns, rows int, ramp []string) []string {
	if columns <= 0 || rows <= 0 || picture.Bounds().Empty() {
		return nil
	}
	whole := image.NewRGBA(image.Rectangle{Max: picture.Bounds().Size()})
	draw.Draw(whole, whole.Rect, picture, picture.Bounds().Min, draw.Src)
	if len(ramp) > 0 {
		return shades(scale(whole, image.Pt(columns, rows)), ramp)
	}
	small := scale(whole, image.Pt(columns, rows*2))
	at := func(x, y int) rgb { return rgb(small.Pix[small.PixOffset(x, y):][:3]) }
	lines := make([]string, rows)
	for y := range lines {
		var out bytes.Buffer
		var have cell
		for x := range columns {
			c := cell{at(x, 2*y), at(x, 2*y+1)}
			if x == 0 || have.upper != c.upper {
				ground(&out, "38", c.upper)
			}
			if x == 0 || have.lower != c.lower {
				ground(&out, "48", c.lower)
			}
			have = c
			out.WriteString("▀")
		}
		lines[y] = out.String() + "\x1b[0m"
	}
	return lines
}

func ground(out *bytes.Buffer, layer string, c rgb) {
	out.WriteString("\x1b[" + layer + ";2;" + strconv.Itoa(int(c[0])) + ";" + strconv.Itoa(int(c[1])) + ";" +
		strconv.Itoa(int(c[2])) + "m")
}

// shades draws a character for each pixel.
func shades(small *image.RGBA, ramp []string) []string {
	lines := make([]string, small.Rect.Dy())
	for y := range lines {
		var b strings.Builder
		for x := range small.Rect.Dx() {
			p := small.Pix[small.PixOffset(x, y):]
			light := (299*int(p[0]) + 587*int(p[1]) + 114*int(p[2])) / 1000
			b.WriteString(ramp[light*(len(ramp)-1)/255])
		}
		lines[y] = b.String()
	}
	return lines
}

// Thumb returns the size of a thumbnail of a picture, cells: as large as fits with the picture's proportions, a cell
// being twice as high as wide.
func Thumb(picture image.Point, columns, rows int) (int, int) {
	if picture.X <= 0 || picture.Y <= 0 {
		return 0, 0
	}
	if across := 2 * rows * picture.X / picture.Y; across < columns {
		return max(1, across), rows
	}
	return columns, max(1, columns*picture.Y/picture.X/2)
}
