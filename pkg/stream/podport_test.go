package stream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// node is the other end of a PodPort: it sends messages, and takes what comes.
func node(t *testing.T, messages ...string) (*PodPort, Packets) {
	t.Helper()
	a, b := pair(t, Options{}, Options{})
	far := Packets{b}
	for _, message := range messages {
		if _, err := far.Write([]byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	return NewPodPort(a, 8443), far
}

// greet begins both channels of port 8443.
const data, fault = "\x00\xfb\x20", "\x01\xfb\x20"

func TestPodPort(t *testing.T) {
	p, far := node(t, data, fault, "\x00one", "", "\x00", "\x01", "\x00two")
	if err := far.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(p)
	if err != nil || string(got) != "onetwo" {
		t.Errorf("%q, %v", got, err)
	}
	sent := bytes.Repeat([]byte("0123456789"), maxMessage/8)
	done := make(chan error, 1)
	go func() {
		n, err := p.Write(sent)
		if n != len(sent) {
			err = errors.Join(err, io.ErrShortWrite)
		}
		done <- err
	}()
	var taken []byte
	for len(taken) < len(sent) {
		buffer := make([]byte, BufferSize)
		n, err := far.Read(buffer)
		if err != nil || n < 2 || buffer[0] != 0 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		taken = append(taken, buffer[1:n]...)
	}
	if err := <-done; err != nil || !bytes.Equal(taken, sent) {
		t.Errorf("%d bytes instead of %d: %v", len(taken), len(sent), err)
	}
	if n, err := p.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing to read into: %d, %v", n, err)
	}
}

func TestPodPortRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		messages []string
		want     string
	}{
		"nothing listens": {
			[]string{data, fault, "\x01connection refused\n"}, "does not reach the pod's port: connection refused",
		},
		"another port":       {[]string{"\x00\x01\x00"}, "leads to port 1 instead of 8443"},
		"half a port":        {[]string{"\x00\xfb"}, "unexpected EOF"},
		"an unknown channel": {[]string{data, "\x02x"}, "channel 2"},
	} {
		p, _ := node(t, tc.messages...)
		_, err := p.Read(make([]byte, 10))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, again := p.Read(make([]byte, 10)); again == nil {
			t.Errorf("%s: it goes on", name)
		}
	}
}
