package launcher

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// rpcMessage is one of libvirt's.
func rpcMessage(program, procedure, kind, status uint32, content []byte) []byte {
	var b []byte
	for _, n := range []uint32{uint32(rpcHeader + len(content)), program, 1, procedure, kind, 7, status} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return append(b, content...)
}

// finishCall asks the other libvirtd for the end of a migration.
func finishCall(cancelled uint32) []byte {
	return rpcMessage(remoteProgram, procedureFinish, rpcCall, 0,
		binary.BigEndian.AppendUint32([]byte("argu"), cancelled))
}

// gated is a gate with the test at both ends.
func gated(t *testing.T) (_ *gate, here, there net.Conn) {
	t.Helper()
	listener, err := listen(filepath.Join(t.TempDir(), "g"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	g := newGate(t.Context(), listener, func(context.Context) (net.Conn, error) { return a, nil })
	t.Cleanup(g.close)
	here, err = net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); b.Close() })
	for _, conn := range []net.Conn{here, b} {
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return g, here, b
}

func mustPass(t *testing.T, to io.Writer, from io.Reader, message []byte) {
	t.Helper()
	sent := make(chan error, 1)
	go func() { _, err := to.Write(message); sent <- err }()
	got := make([]byte, len(message))
	if _, err := io.ReadFull(from, got); err != nil || !bytes.Equal(got, message) {
		t.Fatalf("%x came as %x, %v", message, got, err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// The answer that the guest is there waits until the launchers have agreed, and is lost when the guest is to stay;
// nothing else waits.
func TestGate(t *testing.T) {
	answer := rpcMessage(remoteProgram, procedureFinish, rpcReply, statusOK, []byte("domain"))
	for name, open := range map[string]bool{"opened": true, "shut": false} {
		t.Run(name, func(t *testing.T) {
			g, here, there := gated(t)
			mustPass(t, here, there, rpcMessage(remoteProgram, 305, rpcCall, 0, bytes.Repeat([]byte("memory"), 1<<16)))
			mustPass(t, there, here, rpcMessage(remoteProgram, 305, rpcReply, 0, nil))
			mustPass(t, there, here, answer) // to a question that nobody asked: it is not that answer
			mustPass(t, here, there, finishCall(0))
			mustPass(t, there, here, rpcMessage(0x6b656570, 1, 2, 0, nil)) // keepalive
			if _, err := there.Write(answer); err != nil {
				t.Fatal(err)
			}
			<-g.held()
			if err := here.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if n, err := here.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Fatalf("libvirt hears of it: %d bytes, %v", n, err)
			}
			if err := here.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if open {
				g.open()
			} else {
				g.shut()
			}
			got, want := make([]byte, len(answer)), answer
			n, err := io.ReadFull(here, got)
			if open && !bytes.Equal(got, want) || !open && (n > 0 || err == nil) {
				t.Errorf("libvirt gets %x, %v", got[:n], err)
			}
		})
	}
}

// That the other side could not finish, or has ended the guest as it was asked to, is no news to wait with.
func TestGatePassesFailure(t *testing.T) {
	for name, c := range map[string]struct{ cancelled, status uint32 }{"failed": {0, 1}, "cancelled": {1, statusOK}} {
		t.Run(name, func(t *testing.T) {
			_, here, there := gated(t)
			mustPass(t, here, there, finishCall(c.cancelled))
			mustPass(t, there, here, rpcMessage(remoteProgram, procedureFinish, rpcReply, c.status, []byte("why")))
		})
	}
}

// What is not libvirt's protocol ends the connection.
func TestGateRefusesGarbage(t *testing.T) {
	for name, length := range map[string]uint32{"too short": rpcHeader - 1, "too long": maxRPC + 1} {
		t.Run(name, func(t *testing.T) {
			_, here, there := gated(t)
			message := rpcMessage(remoteProgram, 1, rpcReply, 0, nil)
			binary.BigEndian.PutUint32(message, length)
			if _, err := there.Write(message); err != nil {
				t.Fatal(err)
			}
			if n, err := here.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("it passes: %v", err)
			}
		})
	}
}
