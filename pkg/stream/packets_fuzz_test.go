package stream

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// FuzzPackets feeds raw bytes to a server that reads datagrams into a buffer of any size: none is longer than its
// buffer or than a datagram can be, and together they hold no more than was sent.
func FuzzPackets(f *testing.F) {
	f.Add([]byte{0x82, 0x81, 0, 0, 0, 0, 'x'}, uint16(4))
	f.Add([]byte{0x82, 0x80, 0, 0, 0, 0, 0x82, 0x80, 0, 0, 0, 0}, uint16(4))             // empty datagrams
	f.Add([]byte{0x82, 0x83, 0, 0, 0, 0, 'x', 'y', 'z'}, uint16(0))                      // no room
	f.Add([]byte{0x02, 0x81, 0, 0, 0, 0, 'x', 0x80, 0x81, 0, 0, 0, 0, 'y'}, uint16(1))   // in two frames
	f.Add([]byte{0x82, 0xfe, 0xff, 0xff, 0, 0, 0, 0, 'x'}, uint16(9))                    // cut short
	f.Add([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, uint16(0xffff))        // longer than a datagram
	f.Add([]byte{0x81, 0x81, 0, 0, 0, 0, 'x', 0x82, 0x81, 0, 0, 0, 0, 'y'}, uint16(100)) // text before
	f.Fuzz(func(t *testing.T, frames []byte, room uint16) {
		done := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(done)
			c, err := Accept(w, r, Options{Linger: time.Millisecond})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			packets, buf, total := Packets{c}, make([]byte, room), 0
			for {
				n, err := packets.Read(buf)
				if total += n; n < 0 || n > len(buf) || n > MaxPacket || total > len(frames) {
					t.Errorf("a datagram of %d bytes into %d, %d in all out of %d", n, len(buf), total, len(frames))
				}
				if err != nil {
					return
				}
			}
		}))
		defer server.Close()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
		_, _ = conn.Write(frames) // the server may have hung up
		_ = conn.(*net.TCPConn).CloseWrite()
		<-done
	})
}
