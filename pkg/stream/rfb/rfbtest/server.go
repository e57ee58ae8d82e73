// Package rfbtest is a VNC server for tests: it shows a picture, and records keys and the pointer.
package rfbtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"sync"
)

// Server is a screen that any number of clients look at.
type Server struct {
	mu      sync.Mutex
	screen  *image.RGBA
	version int
	changed chan struct{}

	// Key and Pointer, if set, are called for what clients send.
	Key     func(sym uint32, down bool)
	Pointer func(x, y int, buttons byte)
}

// New makes a server that shows a picture.
func New(screen *image.RGBA) *Server {
	return &Server{screen: screen, changed: make(chan struct{})}
}

// Show shows another picture, of any size.
func (s *Server) Show(screen *image.RGBA) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.screen = screen
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) now() (*image.RGBA, int, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen, s.version, s.changed
}

// Serve serves one client until it goes away, which is nil, or breaks the protocol.
func (s *Server) Serve(conn io.ReadWriteCloser) error {
	c := &client{server: s, conn: conn, asked: make(chan bool, 16), done: make(chan struct{})}
	if err := c.shake(); err != nil {
		return errors.Join(err, conn.Close())
	}
	var sending sync.WaitGroup
	sending.Go(c.send)
	err := c.hear()
	close(c.done)
	_ = conn.Close()
	sending.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

type client struct {
	server *Server
	conn   io.ReadWriteCloser
	asked  chan bool // incremental or not
	done   chan struct{}
	shown  image.Point
}

func (c *client) shake() error {
	if _, err := io.WriteString(c.conn, "RFB 003.008\n"); err != nil {
		return err
	}
	if err := c.read(make([]byte, 12)); err != nil {
		return err
	}
	if _, err := c.conn.Write([]byte{1, 1}); err != nil {
		return err
	}
	if err := c.read(make([]byte, 1)); err != nil {
		return err
	}
	if _, err := c.conn.Write(make([]byte, 4)); err != nil {
		return err
	}
	if err := c.read(make([]byte, 1)); err != nil {
		return err
	}
	screen, _, _ := c.server.now()
	c.shown = screen.Rect.Size()
	init := binary.BigEndian.AppendUint16(nil, uint16(c.shown.X))
	init = binary.BigEndian.AppendUint16(init, uint16(c.shown.Y))
	init = append(init, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0, 0, 0, 0, 4)
	_, err := c.conn.Write(append(init, "test"...))
	return err
}

func (c *client) read(p []byte) error {
	_, err := io.ReadFull(c.conn, p)
	return err
}

// hear reads messages.
func (c *client) hear() error {
	for {
		var kind [1]byte
		if err := c.read(kind[:]); err != nil {
			return err
		}
		lengths := map[byte]int{0: 19, 2: 3, 3: 9, 4: 7, 5: 5, 6: 7}
		length, known := lengths[kind[0]]
		if !known {
			return fmt.Errorf("message of type %d", kind[0])
		}
		b := make([]byte, length)
		if err := c.read(b); err != nil {
			return err
		}
		switch kind[0] {
		case 2:
			if err := c.read(make([]byte, 4*int(binary.BigEndian.Uint16(b[1:])))); err != nil {
				return err
			}
		case 3:
			select {
			case c.asked <- b[0] == 1:
			case <-c.done:
			}
		case 4:
			if c.server.Key != nil {
				c.server.Key(binary.BigEndian.Uint32(b[3:]), b[0] == 1)
			}
		case 5:
			if c.server.Pointer != nil {
				c.server.Pointer(int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:])), b[0])
			}
		case 6:
			if err := c.read(make([]byte, binary.BigEndian.Uint32(b[3:]))); err != nil {
				return err
			}
		}
	}
}

// send answers requests, incremental ones when the picture is another.
func (c *client) send() {
	sent := -1
	for {
		var incremental bool
		select {
		case incremental = <-c.asked:
		case <-c.done:
			return
		}
		screen, version, changed := c.server.now()
		if incremental && version == sent {
			select {
			case <-changed:
			case <-c.done:
				return
			}
			screen, version, _ = c.server.now()
		}
		sent = version
		if _, err := c.conn.Write(c.update(screen)); err != nil {
			return // the reader sees it too
		}
	}
}

func (c *client) update(screen *image.RGBA) []byte {
	size := screen.Rect.Size()
	rectangle := func(b []byte, encoding int32) []byte {
		b = append(b, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(size.X))
		b = binary.BigEndian.AppendUint16(b, uint16(size.Y))
		return binary.BigEndian.AppendUint32(b, uint32(encoding))
	}
	const resize, raw = -223, 0
	message := []byte{0, 0, 0, 1}
	if size != c.shown {
		message[3] = 2
		message = rectangle(message, resize)
		c.shown = size
	}
	message = rectangle(message, raw)
	for y := range size.Y {
		message = append(message, screen.Pix[y*screen.Stride:][:size.X*4]...)
	}
	return message
}
