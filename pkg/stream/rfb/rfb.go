// Package rfb is a small client of the Remote Framebuffer protocol, version 3.8 (RFC 6143), which VNC servers speak. It
// keeps the screen as an image and sends keys and pointer moves; it knows neither terminal nor network: the caller
// brings the stream.
//
//	conn, err := rfb.Open(stream, true)        handshake; the screen's size is known
//	conn.Start()                               pixel format, encodings, first request
//	for { update, err := conn.Next() … }       one goroutine; conn.View gives the image to another
//	conn.Key(sym, true)                        from any goroutine
//
// The server is not trusted: sizes are bounded, rectangles must lie on the screen.
//
// mitchellh/go-vnc (MIT, 2015) was run: it decodes raw rectangles only, so that QEMU's first screen of 720 × 400 takes
// 1,152,016 bytes instead of 1,274. A server ends its program by a rectangle of 65535 × 65535 (it allocates 24 GiB) or
// a colour map's entry above 255 (it panics); a new size or a message that it does not know ends it without an error.
// Two more were read, not run, since Go's module proxy does not have them. kward/go-vnc decodes raw rectangles only,
// too, without ZRLE, Hextile and CopyRect, which make the screen usable over a slow line. amitbet/vnc2video has those,
// but takes what the server says: it allocates what a length of 32 bits asks for, indexes palettes unchecked, goes on
// after a tile that it does not know, and does not act on a new screen size. None of the three knows QEMU's
// pseudo-encoding for a relative pointer.
package rfb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"sync"
)

const (
	version = "RFB 003.008\n"
	// MaxPixels bounds a screen: more than 7680 × 4320.
	MaxPixels = 40 << 20
	// maxText bounds the server's texts, bytes.
	maxText = 4 << 10
	// maxCut bounds the clipboard that a server may send, bytes.
	maxCut = 16 << 20
)

// ErrProtocol says that a server violated the protocol, or sent something out of all proportion.
var ErrProtocol = errors.New("the VNC server breaks the protocol")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// Conn is one connection. Next is for one goroutine; everything else may be called from any.
type Conn struct {
	// Name is the server's name for the screen.
	Name string

	in *bufio.Reader

	writeMu sync.Mutex
	out     io.Writer

	mu       sync.Mutex
	screen   *image.RGBA
	relative bool

	zrle inflated
	tile [tileSide * tileSide * 3]byte
}

// Open shakes hands. A shared connection leaves other clients of the server alone.
func Open(stream io.ReadWriter, shared bool) (*Conn, error) {
	c := &Conn{in: bufio.NewReaderSize(stream, 64<<10), out: stream}
	if err := c.open(shared); err != nil {
		return nil, fmt.Errorf("vnc handshake: %w", err)
	}
	return c, nil
}

func (c *Conn) open(shared bool) error {
	var hello [len(version)]byte
	if _, err := io.ReadFull(c.in, hello[:]); err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(hello[:]), "RFB %03d.%03d\n", &major, &minor); err != nil {
		return broken("it begins with %q", hello[:])
	}
	if major < 3 || major == 3 && minor < 8 {
		return fmt.Errorf("the server speaks RFB %d.%d; 3.8 or newer is needed", major, minor)
	}
	if _, err := io.WriteString(c.out, version); err != nil {
		return err
	}
	if err := c.secure(); err != nil {
		return err
	}
	var share byte
	if shared {
		share = 1
	}
	if _, err := c.out.Write([]byte{share}); err != nil {
		return err
	}
	var init struct {
		Width, Height uint16
		Format        [16]byte
		NameLength    uint32
	}
	if err := binary.Read(c.in, binary.BigEndian, &init); err != nil {
		return err
	}
	if init.NameLength > maxText {
		return broken("a name of %d bytes", init.NameLength)
	}
	name := make([]byte, init.NameLength)
	if _, err := io.ReadFull(c.in, name); err != nil {
		return err
	}
	c.Name = string(name)
	return c.resize(int(init.Width), int(init.Height))
}

// secure agrees on no security of the protocol's own: the stream has it.
func (c *Conn) secure() error {
	count, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	if count == 0 {
		return c.refusal()
	}
	kinds := make([]byte, count)
	if _, err := io.ReadFull(c.in, kinds); err != nil {
		return err
	}
	const none = 1
	found := false
	for _, kind := range kinds {
		found = found || kind == none
	}
	if !found {
		return fmt.Errorf("the server asks for a password or a certificate (security types %d); only \"none\" is "+
			"supported", kinds)
	}
	if _, err := c.out.Write([]byte{none}); err != nil {
		return err
	}
	result, err := c.uint32()
	if err != nil {
		return err
	}
	if result != 0 {
		return c.refusal()
	}
	return nil
}

func (c *Conn) refusal() error {
	length, err := c.uint32()
	if err != nil {
		return err
	}
	if length > maxText {
		return broken("a reason of %d bytes", length)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(c.in, text); err != nil {
		return err
	}
	return fmt.Errorf("the server refuses: %q", text)
}

func (c *Conn) uint32() (uint32, error) {
	var b [4]byte
	if _, err := io.ReadFull(c.in, b[:]); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b[:]), nil
}

// resize makes the screen anew, keeping what fits.
func (c *Conn) resize(width, height int) error {
	if width*height > MaxPixels {
		return broken("a screen of %d×%d pixels", width, height)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.screen
	c.screen = image.NewRGBA(image.Rect(0, 0, width, height))
	for i := 3; i < len(c.screen.Pix); i += 4 {
		c.screen.Pix[i] = 0xff
	}
	if before != nil {
		both := before.Rect.Intersect(c.screen.Rect)
		for y := range both.Dy() {
			copy(c.screen.Pix[y*c.screen.Stride:][:both.Dx()*4], before.Pix[y*before.Stride:])
		}
	}
	return nil
}

// View calls f with the screen, which f must neither change nor keep.
func (c *Conn) View(f func(screen *image.RGBA)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.screen)
}

// Size returns the screen's, pixels.
func (c *Conn) Size() (width, height int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.screen.Rect.Dx(), c.screen.Rect.Dy()
}

// Relative reports that the guest's pointer is a mouse that only knows how far it is moved, rather than a tablet. A
// Pointer call then takes the distance plus 0x7fff.
func (c *Conn) Relative() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.relative
}

// Encodings: those of pixels, best first, and what the client understands besides.
const (
	encodingRaw          = 0
	encodingCopyRect     = 1
	encodingHextile      = 5
	encodingZRLE         = 16
	encodingDesktopSize  = -223
	encodingPointerShape = -257 // QEMU: the pointer is relative or absolute
)

var encodings = []int32{
	encodingZRLE, encodingHextile, encodingCopyRect, encodingRaw, encodingDesktopSize,
	encodingPointerShape,
}

// Start sets how pixels are to be sent and asks for the whole screen.
func (c *Conn) Start() error {
	// 32 bits a pixel, depth 24, little endian, true colour, 8 bits each, red first: the bytes of image.RGBA.
	format := []byte{0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0}
	message := append(format, 2, 0)
	message = binary.BigEndian.AppendUint16(message, uint16(len(encodings)))
	for _, e := range encodings {
		message = binary.BigEndian.AppendUint32(message, uint32(e))
	}
	if err := c.send(message); err != nil {
		return err
	}
	return c.Request(false)
}

// Request asks for an update: of what has changed, or of everything.
func (c *Conn) Request(incremental bool) error {
	width, height := c.Size()
	message := []byte{3, 0, 0, 0, 0, 0}
	if incremental {
		message[1] = 1
	}
	message = binary.BigEndian.AppendUint16(message, uint16(width))
	return c.send(binary.BigEndian.AppendUint16(message, uint16(height)))
}

// Key presses or releases a key, by its X11 keysym.
func (c *Conn) Key(sym uint32, down bool) error {
	message := []byte{4, 0, 0, 0}
	if down {
		message[1] = 1
	}
	return c.send(binary.BigEndian.AppendUint32(message, sym))
}

// Pointer sends the position of the pointer and which buttons are down: bit 0 left, 1 middle, 2 right, 3 and 4 the
// wheel.
func (c *Conn) Pointer(x, y int, buttons byte) error {
	message := binary.BigEndian.AppendUint16([]byte{5, buttons}, uint16(max(0, min(x, 0xffff))))
	return c.send(binary.BigEndian.AppendUint16(message, uint16(max(0, min(y, 0xffff)))))
}

func (c *Conn) send(message []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	_, err := c.out.Write(message)
	return err
}
