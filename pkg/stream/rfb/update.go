package rfb

import (
	"encoding/binary"
	"fmt"
	"image"
	"io"
)

// Update describes a message of the server.
type Update struct {
	// Changed is the part of the screen that is new; empty for other messages.
	Changed image.Rectangle
	// Resized says that the screen has another size now.
	Resized bool
	// Bell is the guest's bell.
	Bell bool
}

// Next reads one message. After one with changes, or a resize, the caller asks for more with Request.
func (c *Conn) Next() (Update, error) {
	kind, err := c.in.ReadByte()
	if err != nil {
		return Update{}, err
	}
	switch kind {
	case 0:
		return c.update()
	case 1: // colours of a palette, which our pixel format has not
		var head [5]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return Update{}, err
		}
		return Update{}, c.skip(6 * int64(binary.BigEndian.Uint16(head[3:])))
	case 2:
		return Update{Bell: true}, nil
	case 3:
		var head [7]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return Update{}, err
		}
		length := binary.BigEndian.Uint32(head[3:])
		if length > maxCut {
			return Update{}, broken("a clipboard of %d bytes", length)
		}
		return Update{}, c.skip(int64(length))
	}
	return Update{}, broken("a message of type %d", kind)
}

func (c *Conn) skip(n int64) error {
	_, err := io.CopyN(io.Discard, c.in, n)
	return err
}

func (c *Conn) update() (Update, error) {
	var u Update
	var head [3]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return u, err
	}
	for range binary.BigEndian.Uint16(head[1:]) {
		var r struct {
			X, Y, W, H uint16
			Encoding   int32
		}
		if err := binary.Read(c.in, binary.BigEndian, &r); err != nil {
			return u, err
		}
		rect := image.Rect(int(r.X), int(r.Y), int(r.X)+int(r.W), int(r.Y)+int(r.H))
		switch r.Encoding {
		case encodingDesktopSize:
			if err := c.resize(int(r.W), int(r.H)); err != nil {
				return u, err
			}
			u.Resized = true
			continue
		case encodingPointerShape:
			c.mu.Lock()
			c.relative = r.X == 0
			c.mu.Unlock()
			continue
		}
		if err := c.rectangle(rect, r.Encoding); err != nil {
			return u, fmt.Errorf("rectangle %v, encoding %d: %w", rect, r.Encoding, err)
		}
		u.Changed = u.Changed.Union(rect)
	}
	return u, nil
}

// rectangle decodes one. A row or a tile is read first and then painted, so that a slow server does not hold the lock.
func (c *Conn) rectangle(r image.Rectangle, encoding int32) error {
	if !r.In(c.screen.Rect) && !r.Empty() {
		return broken("it is not on the screen, %v", c.screen.Rect)
	}
	switch encoding {
	case encodingRaw:
		return c.raw(c.in, r)
	case encodingCopyRect:
		return c.copyRect(r)
	case encodingHextile:
		return c.hextile(r)
	case encodingZRLE:
		return c.readZRLE(r)
	}
	return broken("this encoding was not asked for")
}

// raw reads pixels, row by row.
func (c *Conn) raw(in io.Reader, r image.Rectangle) error {
	if r.Empty() {
		return nil
	}
	row := make([]byte, r.Dx()*4)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		if _, err := io.ReadFull(in, row); err != nil {
			return err
		}
		for i := 3; i < len(row); i += 4 {
			row[i] = 0xff
		}
		c.mu.Lock()
		copy(c.screen.Pix[c.screen.PixOffset(r.Min.X, y):], row)
		c.mu.Unlock()
	}
	return nil
}

// copyRect moves a part of the screen.
func (c *Conn) copyRect(r image.Rectangle) error {
	var at [4]byte
	if _, err := io.ReadFull(c.in, at[:]); err != nil {
		return err
	}
	from := image.Pt(int(binary.BigEndian.Uint16(at[:])), int(binary.BigEndian.Uint16(at[2:])))
	source := image.Rectangle{from, from.Add(r.Size())}
	if r.Empty() {
		return nil
	}
	if !source.In(c.screen.Rect) {
		return broken("copied from %v, which is not on the screen", source)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range r.Dy() {
		if source.Min.Y < r.Min.Y {
			i = r.Dy() - 1 - i // downwards: the last row first, as the parts may overlap
		}
		to := c.screen.PixOffset(r.Min.X, r.Min.Y+i)
		at := c.screen.PixOffset(source.Min.X, source.Min.Y+i)
		copy(c.screen.Pix[to:to+r.Dx()*4], c.screen.Pix[at:at+r.Dx()*4])
	}
	return nil
}

// pixel is red, green, blue.
type pixel [3]byte

// fill paints a part of the screen, which lies on it.
func (c *Conn) fill(r image.Rectangle, p pixel) {
	if r.Empty() {
		return
	}
	first := c.screen.Pix[c.screen.PixOffset(r.Min.X, r.Min.Y):][:r.Dx()*4]
	for i := 0; i < len(first); i += 4 {
		first[i], first[i+1], first[i+2], first[i+3] = p[0], p[1], p[2], 0xff
	}
	for y := r.Min.Y + 1; y < r.Max.Y; y++ {
		copy(c.screen.Pix[c.screen.PixOffset(r.Min.X, y):], first)
	}
}

const hextileSide = 16

// hextile reads tiles of 16×16 pixels, each a background with rectangles on it, or raw.
func (c *Conn) hextile(r image.Rectangle) error {
	const raw, setBackground, setForeground, rectangles, coloured = 1, 2, 4, 8, 16
	var background, foreground pixel
	for y := r.Min.Y; y < r.Max.Y; y += hextileSide {
		for x := r.Min.X; x < r.Max.X; x += hextileSide {
			tile := image.Rect(x, y, x+hextileSide, y+hextileSide).Intersect(r)
			kind, err := c.in.ReadByte()
			if err != nil {
				return err
			}
			if kind&raw != 0 {
				if err := c.raw(c.in, tile); err != nil {
					return err
				}
				continue
			}
			if kind&setBackground != 0 {
				if background, err = c.pixel4(); err != nil {
					return err
				}
			}
			if kind&setForeground != 0 {
				if foreground, err = c.pixel4(); err != nil {
					return err
				}
			}
			c.locked(func() { c.fill(tile, background) })
			if kind&rectangles == 0 {
				continue
			}
			count, err := c.in.ReadByte()
			if err != nil {
				return err
			}
			for range count {
				colour := foreground
				if kind&coloured != 0 {
					if colour, err = c.pixel4(); err != nil {
						return err
					}
				}
				var at [2]byte
				if _, err := io.ReadFull(c.in, at[:]); err != nil {
					return err
				}
				from := tile.Min.Add(image.Pt(int(at[0]>>4), int(at[0]&15)))
				part := image.Rectangle{from, from.Add(image.Pt(int(at[1]>>4)+1, int(at[1]&15)+1))}
				c.locked(func() { c.fill(part.Intersect(tile), colour) })
			}
		}
	}
	return nil
}

func (c *Conn) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *Conn) pixel4() (pixel, error) {
	var b [4]byte
	_, err := io.ReadFull(c.in, b[:])
	return pixel{b[0], b[1], b[2]}, err
}
