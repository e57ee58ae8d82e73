package forward

import (
	"github.com/virtkit/virtkit/pkg/stream"
)

// earlyBytes is how much of what a program sends is sent before it is known that the guest is reached.
const earlyBytes = 16 << 10

// early is a program's connection that is read from before its guest is reached, so that what the program says at once
// goes with the question for the guest, and not a round trip later.
type early struct {
	stream.Socket
	// got is closed when the first read has ended, nil when there is none. bytes and err are its result.
	got   chan struct{}
	bytes []byte
	err   error
	// sent says that a stream has taken the bytes.
	sent bool
}

// begin begins the first read, once.
func (e *early) begin() {
	if e.got != nil {
		return
	}
	e.got = make(chan struct{})
	go func() {
		defer close(e.got)
		buf := make([]byte, earlyBytes)
		n, err := e.Socket.Read(buf)
		e.bytes, e.err = buf[:n], err
	}()
}

// arrived forgets what has been sent: the guest is reached.
func (e *early) arrived() {
	if e.sent {
		e.bytes, e.sent = nil, false
	}
}

// Read reads the first bytes, unless they have arrived, and then from the socket.
func (e *early) Read(p []byte) (int, error) {
	if e.got != nil {
		<-e.got
		if len(e.bytes) > 0 {
			n := copy(p, e.bytes)
			e.bytes = e.bytes[n:]
			return n, nil
		}
		if e.err != nil {
			return 0, e.err
		}
	}
	return e.Socket.Read(p)
}

// wait waits for the first read of a connection that has been closed.
func (e *early) wait() {
	if e.got != nil {
		<-e.got
	}
}
