package stream

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"
)

// filled writes until the peer takes no more, which is an error then.
func filled(w io.Writer) error {
	buf := make([]byte, BufferSize)
	for {
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
}

// A peer that is there, and answers, but takes nothing does not hold a writer for ever.
func TestWriteEndsWhenThePeerTakesNothing(t *testing.T) {
	writer, _ := pair(t, Options{Stall: 200 * time.Millisecond}, Options{PingPeriod: 20 * time.Millisecond})
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, writer)
		read <- err
	}()
	if err := filled(writer); !errors.Is(err, ErrPeerStalled) {
		t.Errorf("write: %v", err)
	}
	select {
	case err := <-read:
		if !errors.Is(err, ErrPeerStalled) {
			t.Errorf("read: %v", err)
		}
	case <-time.After(deadline):
		t.Error("the reader waits on")
	}
}

func TestSlowIsNotStalled(t *testing.T) {
	writer, reader := pair(t, Options{Stall: 2 * time.Second}, Options{})
	sent := make(chan error, 1)
	go func() {
		for range 40 {
			if _, err := writer.Write(make([]byte, BufferSize)); err != nil {
				sent <- err
				return
			}
		}
		sent <- writer.CloseWrite()
	}()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	buf := make([]byte, 32<<10)
	for {
		<-ticker.C
		if _, err := reader.Read(buf); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// Client and guest both send and take nothing: neither relay of the splice reads any more, so that nobody would see a
// side leave, and the splice stayed for as long as the guest wanted.
func TestSpliceEndsWhenNobodyTakesAnything(t *testing.T) {
	client, server := pair(t, Options{PingPeriod: 20 * time.Millisecond}, Options{})
	guest, target := tcpPair(t)
	done := make(chan error, 1)
	go func() { done <- spliceWithin(context.Background(), server, AsSocket(target), 300*time.Millisecond) }()
	go filled(client)
	go filled(guest)
	select {
	case err := <-done:
		if !errors.Is(err, ErrPeerStalled) {
			t.Errorf("the splice ended with %v", err)
		}
	case <-time.After(deadline):
		t.Error("the splice goes on")
	}
}
