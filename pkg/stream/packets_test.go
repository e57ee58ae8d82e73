package stream

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestPacketsKeepMessagesApart(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	pa, pb := Packets{a}, Packets{b}
	long := bytes.Repeat([]byte("x"), MaxPacket)
	sent := [][]byte{[]byte("one"), {}, []byte("two"), long, []byte("three")}
	done := make(chan error, 1)
	go func() {
		for _, packet := range sent {
			if _, err := pa.Write(packet); err != nil {
				done <- err
				return
			}
		}
		done <- pa.CloseWrite()
	}()
	buf := make([]byte, BufferSize)
	for i, want := range sent {
		n, err := pb.Read(buf)
		if err != nil || !bytes.Equal(buf[:n], want) {
			t.Fatalf("datagram %d has %d bytes, %v; want %d", i, n, err, len(want))
		}
	}
	if _, err := pb.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := pa.Write(make([]byte, MaxPacket+1)); !errors.Is(err, ErrPacketTooLong) {
		t.Errorf("too long a datagram: %v", err)
	}
}

func TestPacketsLoseWhatDoesNotFit(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	for _, packet := range []string{"0123456789", "abc"} {
		if _, err := (Packets{a}).Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 4)
	for _, want := range []string{"0123", "abc"} {
		if n, err := (Packets{b}).Read(buf); err != nil || string(buf[:n]) != want {
			t.Errorf("got %q, %v; want %q", buf[:n], err, want)
		}
	}
}

func TestPacketsRefuseWhatIsNoDatagram(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	done := make(chan error, 1)
	go func() {
		_, err := a.Write(make([]byte, MaxPacket+1))
		done <- err
	}()
	if _, err := (Packets{b}).Read(make([]byte, BufferSize)); !errors.Is(err, ErrPacketTooLong) {
		t.Errorf("got %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
