package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// PodPortProtocol is the subprotocol of a stream to a port of a pod, Kubernetes' own: each message begins with a byte
// that says its channel, and each channel with two bytes that say the port.
const PodPortProtocol = "v4.channel.k8s.io"

const (
	channelData, channelError = 0, 1
	// maxRefusal bounds what is read of a node's message, bytes.
	maxRefusal = 1 << 10
	// maxMessage is the most that Write puts into one message, bytes.
	maxMessage = 32 << 10
)

// PodPort is a Conn to one port of a pod, dialled with PodPortProtocol. A Conn is used either through PodPort or by
// itself, not both.
type PodPort struct {
	*Conn
	port uint16
	// greeted says from which channels the port has been read.
	greeted [2]bool
	reader  io.Reader // rest of the current message
}

var _ net.Conn = (*PodPort)(nil)

// NewPodPort makes one of a Conn to that port.
func NewPodPort(conn *Conn, port uint16) *PodPort { return &PodPort{Conn: conn, port: port} }

// Read reads what the pod has sent. Its errors are Conn.Read's, and the node's when nothing listens at the port.
func (p *PodPort) Read(b []byte) (int, error) {
	c := p.Conn
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	for c.readErr == nil {
		if p.reader == nil {
			reader := c.next()
			if reader == nil {
				break
			}
			if err := p.begin(reader); err != nil {
				c.readErr = err
				break
			}
			continue
		}
		c.heard()
		n, err := p.reader.Read(b)
		switch {
		case errors.Is(err, io.EOF):
			p.reader = nil
		case err != nil:
			c.readErr = c.readError(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, c.readErr
}

// begin looks at the beginning of a message. The reader is set when data follows.
func (p *PodPort) begin(message io.Reader) error {
	var channel [1]byte
	if _, err := io.ReadFull(message, channel[:]); errors.Is(err, io.EOF) {
		return nil // an empty message
	} else if err != nil {
		return p.readError(err)
	}
	if channel[0] > channelError {
		return fmt.Errorf("the node has sent data of channel %d; a port has only channels 0 and 1", channel[0])
	}
	if !p.greeted[channel[0]] {
		var port [2]byte
		if _, err := io.ReadFull(message, port[:]); err != nil {
			return p.readError(err)
		}
		if got := binary.LittleEndian.Uint16(port[:]); got != p.port {
			return fmt.Errorf("the node leads to port %d instead of %d", got, p.port)
		}
		p.greeted[channel[0]] = true
	}
	if channel[0] == channelData {
		p.reader = message
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(message, maxRefusal))
	if err != nil {
		return p.readError(err)
	}
	if len(text) == 0 {
		return nil
	}
	return errors.New("the node does not reach the pod's port: " + strings.TrimSpace(string(text)))
}

// Write sends b.
func (p *PodPort) Write(b []byte) (int, error) {
	message := make([]byte, 0, min(len(b), maxMessage)+1)
	sent := 0
	for sent < len(b) {
		part := b[sent:min(len(b), sent+maxMessage)]
		if _, err := p.write(append(append(message[:0], channelData), part...)); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}
