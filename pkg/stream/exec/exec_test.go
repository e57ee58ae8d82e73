package exec

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	big := bytes.Repeat([]byte("x"), MaxFrame+7)
	if err := WriteJSON(&b, ChannelRequest, Request{Command: []string{"id"}}); err != nil {
		t.Fatal(err)
	}
	if err := WriteAll(&b, ChannelStdout, big); err != nil {
		t.Fatal(err)
	}
	if err := WriteFrame(&b, ChannelStdin, nil); err != nil {
		t.Fatal(err)
	}
	if err := WriteFrame(&b, ChannelStdin, big); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	r := iotest.OneByteReader(&b) // frames may come in any pieces
	for _, want := range []struct {
		channel Channel
		payload string
	}{
		{ChannelRequest, `{"command":["id"]}`},
		{ChannelStdout, string(big[:MaxFrame])},
		{ChannelStdout, "xxxxxxx"},
		{ChannelStdin, ""},
	} {
		channel, payload, err := ReadFrame(r)
		if err != nil || channel != want.channel || string(payload) != want.payload {
			t.Fatalf("channel %d, %d bytes, %v; want %d, %d bytes", channel, len(payload), err, want.channel,
				len(want.payload))
		}
	}
	if _, _, err := ReadFrame(r); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
	for text, want := range map[string]error{
		"\x01\x00":              io.ErrUnexpectedEOF,
		"\x01\x00\x00\x00\x02a": io.ErrUnexpectedEOF,
		"\x01\xff\xff\xff\xff":  ErrTooLarge,
	} {
		if _, _, err := ReadFrame(bytes.NewReader([]byte(text))); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x02ab"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			_, payload, err := ReadFrame(r)
			if err != nil {
				return
			}
			if len(payload) > len(data) {
				t.Fatal("more than there was")
			}
		}
	})
}
