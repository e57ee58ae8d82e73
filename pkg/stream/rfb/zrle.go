package rfb

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"image"
	"io"
)

const (
	tileSide = 64
	// maxLeft is the most of a compressed rectangle that may be left over by the pixels it holds, bytes.
	maxLeft = 64 << 10
)

// inflated is the zlib stream that goes on from one ZRLE rectangle to the next.
type inflated struct {
	compressed bytes.Buffer
	pixels     *bufio.Reader
}

// add appends the compressed bytes of one more rectangle.
func (z *inflated) add(in io.Reader, length int64) error {
	if z.compressed.Len() > maxLeft {
		return broken("%d bytes left of the rectangle before", z.compressed.Len())
	}
	if _, err := io.CopyN(&z.compressed, in, length); err != nil {
		return err
	}
	if z.pixels == nil {
		stream, err := zlib.NewReader(&z.compressed)
		if err != nil {
			return broken("%v", err)
		}
		z.pixels = bufio.NewReader(stream)
	}
	return nil
}

// readZRLE decodes a rectangle of compressed tiles.
func (c *Conn) readZRLE(r image.Rectangle) error {
	length, err := c.uint32()
	if err != nil {
		return err
	}
	// Nobody needs more than a raw rectangle, and a byte a tile, takes.
	if most := int64(r.Dx())*int64(r.Dy())*4 + maxLeft; int64(length) > most {
		return broken("%d bytes where %d would do", length, most)
	}
	if err := c.zrle.add(c.in, int64(length)); err != nil {
		return err
	}
	for y := r.Min.Y; y < r.Max.Y; y += tileSide {
		for x := r.Min.X; x < r.Max.X; x += tileSide {
			if err := c.zrleTile(image.Rect(x, y, x+tileSide, y+tileSide).Intersect(r)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Conn) zrleTile(r image.Rectangle) error {
	in := c.zrle.pixels
	kind, err := in.ReadByte()
	if err != nil {
		return early(err)
	}
	pixels := c.tile[:r.Dx()*r.Dy()*3]
	switch {
	case kind == 0:
		_, err = io.ReadFull(in, pixels)
		err = early(err)
	case kind == 1:
		var p pixel
		_, err = io.ReadFull(in, p[:])
		c.locked(func() { c.fill(r, p) })
		return early(err)
	case kind <= 16:
		err = packed(in, pixels, r.Dx(), int(kind))
	case kind == 128:
		err = runs(in, pixels)
	case kind >= 130:
		err = paletteRuns(in, pixels, int(kind)-128)
	default:
		err = broken("a tile of kind %d", kind)
	}
	if err != nil {
		return err
	}
	c.locked(func() { c.paint(r, pixels) })
	return nil
}

// early returns the error of reading pixels, which end only where the server has counted wrong.
func early(err error) error {
	if err == nil {
		return nil
	}
	return broken("compressed pixels: %v", err)
}

// paint puts pixels of three bytes on the screen.
func (c *Conn) paint(r image.Rectangle, pixels []byte) {
	for y := r.Min.Y; y < r.Max.Y; y++ {
		row := c.screen.Pix[c.screen.PixOffset(r.Min.X, y):][:r.Dx()*4]
		for i := 0; i < len(row); i += 4 {
			row[i], row[i+1], row[i+2], row[i+3] = pixels[0], pixels[1], pixels[2], 0xff
			pixels = pixels[3:]
		}
	}
}

func palette(in io.Reader, size int) ([]pixel, error) {
	colours := make([]pixel, size)
	for i := range colours {
		if _, err := io.ReadFull(in, colours[i][:]); err != nil {
			return nil, early(err)
		}
	}
	return colours, nil
}

// packed reads indices into a palette, of 1, 2 or 4 bits; each row begins with a new byte.
func packed(in *bufio.Reader, pixels []byte, width, size int) error {
	colours, err := palette(in, size)
	if err != nil {
		return err
	}
	bits := 4
	switch {
	case size == 2:
		bits = 1
	case size <= 4:
		bits = 2
	}
	for len(pixels) > 0 {
		var b byte
		left := 0
		for range width {
			if left == 0 {
				if b, err = in.ReadByte(); err != nil {
					return early(err)
				}
				left = 8
			}
			left -= bits
			index := int(b>>left) & (1<<bits - 1)
			if index >= size {
				return broken("colour %d of %d", index, size)
			}
			pixels = pixels[copy(pixels, colours[index][:]):]
		}
	}
	return nil
}

// runs reads colours, each with its number of repetitions.
func runs(in *bufio.Reader, pixels []byte) error {
	for len(pixels) > 0 {
		var p pixel
		if _, err := io.ReadFull(in, p[:]); err != nil {
			return early(err)
		}
		var err error
		if pixels, err = repeat(in, pixels, p); err != nil {
			return err
		}
	}
	return nil
}

func paletteRuns(in *bufio.Reader, pixels []byte, size int) error {
	colours, err := palette(in, size)
	if err != nil {
		return err
	}
	for len(pixels) > 0 {
		index, err := in.ReadByte()
		if err != nil {
			return early(err)
		}
		if int(index&127) >= size {
			return broken("colour %d of %d", index&127, size)
		}
		p := colours[index&127]
		if index&128 == 0 {
			pixels = pixels[copy(pixels, p[:]):]
			continue
		}
		if pixels, err = repeat(in, pixels, p); err != nil {
			return err
		}
	}
	return nil
}

// repeat reads a run's length, the sum of its bytes up to one below 255, plus one, and writes the run.
func repeat(in *bufio.Reader, pixels []byte, p pixel) ([]byte, error) {
	length := 1
	for {
		b, err := in.ReadByte()
		if err != nil {
			return nil, early(err)
		}
		length += int(b)
		if length*3 > len(pixels) {
			return nil, broken("a run of %d pixels where %d are left", length, len(pixels)/3)
		}
		if b < 255 {
			break
		}
	}
	for range length {
		pixels = pixels[copy(pixels, p[:]):]
	}
	return pixels, nil
}
