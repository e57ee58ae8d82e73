package stream

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// tcpPair is both ends of a TCP connection.
func tcpPair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// forwarded is a program at one end, a guest at the other, and sockets and a websocket in between.
func forwarded(t *testing.T) (program, guest *net.TCPConn, done chan error) {
	t.Helper()
	client, server := pair(t, Options{}, Options{})
	program, local := tcpPair(t)
	guest, remote := tcpPair(t)
	done = make(chan error, 2)
	ctx := testContext(t)
	go func() { done <- Splice(ctx, AsSocket(local), client) }()
	go func() { done <- Splice(ctx, server, AsSocket(remote)) }()
	return program, guest, done
}

func ended(t *testing.T, done chan error) {
	t.Helper()
	for range 2 {
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("a splice goes on")
		}
	}
}

func TestResetIsPassedOn(t *testing.T) {
	program, guest, done := forwarded(t)
	if _, err := io.WriteString(guest, "half of an answer"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(program, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if err := guest.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	guest.Close()
	if _, err := io.Copy(io.Discard, program); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the program read %v, want a reset", err)
	}
	ended(t, done)
}

// What a write has found is not lost on the reader, whom the kernel tells of an end then.
func TestResetFoundByAWrite(t *testing.T) {
	conn, peer := tcpPair(t)
	if err := peer.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	socket := AsSocket(conn)
	if err := writeUntilItFails(t, socket); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the write fails with %v", err)
	}
	if _, err := socket.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %v after the write, want a reset", err)
	}
}

// A peer that said all it had to, and takes nothing more, has ended normally.
func TestEndBeforeAReset(t *testing.T) {
	conn, peer := tcpPair(t)
	if _, err := io.WriteString(peer, "answer"); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	socket := AsSocket(conn)
	if err := writeUntilItFails(t, socket); !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("the write fails with %v", err)
	}
	if got, err := io.ReadAll(socket); err != nil || string(got) != "answer" {
		t.Errorf("read %q, %v", got, err)
	}
}

func writeUntilItFails(t *testing.T, conn net.Conn) error {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if _, err := io.WriteString(conn, "x"); err != nil {
			return err
		}
	}
	return errors.New("none within 20 s")
}

// A program that sends while the guest resets its connection reads a reset, whoever sees it first on the way.
func TestResetWhileSending(t *testing.T) {
	for range 50 {
		program, guest, done := forwarded(t)
		socket := AsSocket(program)
		sent := make(chan error, 1)
		go func() { sent <- writeUntilItFails(t, socket) }()
		if _, err := io.ReadFull(guest, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := guest.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		guest.Close()
		if got, err := io.ReadAll(socket); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("the program read %q, %v, want a reset", got, err)
		}
		<-sent
		ended(t, done)
	}
}

// A guest that sends without end learns that the program has gone.
func TestNobodyLeftToReadEndsTheStream(t *testing.T) {
	program, guest, done := forwarded(t)
	sent := make(chan error, 1)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := guest.Write(buf); err != nil {
				sent <- err
				return
			}
		}
	}()
	if _, err := io.ReadFull(program, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	program.Close()
	select {
	case <-sent:
	case <-time.After(20 * time.Second):
		t.Fatal("the guest goes on sending")
	}
	ended(t, done)
}

func TestHalfCloseBothWays(t *testing.T) {
	const size = 64 << 20
	for name, swap := range map[string]bool{"program first": false, "guest first": true} {
		t.Run(name, func(t *testing.T) {
			first, second, done := forwarded(t)
			if swap {
				first, second = second, first
			}
			sum := make(chan int64, 1)
			go func() { // the second says nothing until the first has said all
				n, _ := io.Copy(io.Discard, second)
				_, _ = io.CopyN(second, zeros{}, n)
				second.CloseWrite()
				sum <- n
			}()
			if _, err := io.CopyN(first, zeros{}, size); err != nil {
				t.Fatal(err)
			}
			if err := first.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, first)
			if err != nil || n != size {
				t.Errorf("%d of %d bytes came back, %v", n, size, err)
			}
			if n := <-sum; n != size {
				t.Errorf("%d of %d bytes arrived", n, size)
			}
			ended(t, done)
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
