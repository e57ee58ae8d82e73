package stream

import (
	"errors"
	"io"
	"net"
)

// MaxPacket is the most that a datagram can hold, bytes: UDP's limit over IPv4.
const MaxPacket = 65507

// ErrPacketTooLong is a message that no datagram can carry.
var ErrPacketTooLong = errors.New("message of more than 65507 bytes: no datagram can be so long")

// Packets is a Conn that carries datagrams, each one binary message, empty ones too. Read returns one datagram
// and needs a buffer of MaxPacket bytes; what does not fit is lost, as with any datagram. A Conn is used
// either through Packets or by itself, not both.
type Packets struct{ *Conn }

var _ net.Conn = Packets{}

// Read returns the next datagram. Its errors are Conn.Read's, and ErrPacketTooLong.
func (p Packets) Read(b []byte) (int, error) {
	c := p.Conn
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for c.readErr == nil {
		reader := c.next()
		if reader == nil {
			break
		}
		n, err := c.message(reader, b)
		if err == nil {
			return n, nil
		}
		c.readErr = err
	}
	return 0, c.readErr
}

// message reads one message into b and drops what is longer.
func (c *Conn) message(reader io.Reader, b []byte) (int, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	kept, total := 0, 0
	for {
		into := b[kept:]
		if len(into) == 0 {
			into = *buf
		}
		c.heard()
		n, err := reader.Read(into)
		if total += n; total > MaxPacket {
			return 0, ErrPacketTooLong
		}
		kept = min(total, len(b))
		switch {
		case errors.Is(err, io.EOF):
			return kept, nil
		case err != nil:
			return 0, c.readError(err)
		}
	}
}

// Write sends one datagram.
func (p Packets) Write(b []byte) (int, error) {
	if len(b) > MaxPacket {
		return 0, ErrPacketTooLong
	}
	return p.write(b)
}
