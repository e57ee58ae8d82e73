package stream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// process is the other end of a PodProcess: it sends messages, and takes what comes.
func process(t *testing.T, messages ...string) (PodProcess, Packets) {
	t.Helper()
	a, b := pair(t, Options{}, Options{})
	far := Packets{b}
	for _, message := range messages {
		if _, err := far.Write([]byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	return PodProcess{a}, far
}

// exited is the node's word of an exit code.
func exited(code string) string {
	return `{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated with exit code ` + code +
		`","details":{"causes":[{"reason":"ExitCode","message":"` + code + `"}]}}`
}

func TestPodProcessFollow(t *testing.T) {
	const success = "\x03" + `{"status":"Success"}`
	for name, tc := range map[string]struct {
		messages    []string
		out, errOut string
		code        int
		err         string
	}{
		"it ends well": {
			messages: []string{"", "\x01", "\x01one", "\x02oops", "\x01two", success}, out: "onetwo", errOut: "oops",
		},
		"its exit code": {messages: []string{"\x01x", "\x03" + exited("3")}, out: "x", code: 3},
		"channels end":  {messages: []string{"\xff\x01", "\x03", success}},
		"no such program": {
			messages: []string{"\x03" + `{"status":"Failure","message":"no such file"}`},
			err:      "does not run the program: no such file",
		},
		"no status":        {messages: []string{"\x03nonsense"}, err: "does not run the program: nonsense"},
		"no exit code":     {messages: []string{"\x03" + exited("many")}, err: "does not run the program"},
		"too large a code": {messages: []string{"\x03" + exited("256")}, err: "does not run the program"},
		"an odd channel":   {messages: []string{"\x07x"}, err: "channel 7"},
		"it is cut":        {messages: []string{"\x01x"}, out: "x", err: ErrNoStatus.Error()},
	} {
		p, far := process(t, tc.messages...)
		if err := far.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		err := p.Follow(&out, &errOut)
		var exit *ProcessExitError
		switch {
		case tc.code != 0:
			if !errors.As(err, &exit) || exit.Code != tc.code {
				t.Errorf("%s: %v", name, err)
			}
		case (err != nil) != (tc.err != ""), err != nil && !strings.Contains(err.Error(), tc.err):
			t.Errorf("%s: %v", name, err)
		}
		if out.String() != tc.out || errOut.String() != tc.errOut {
			t.Errorf("%s: %q, %q", name, &out, &errOut)
		}
	}
}

// brokenWriter takes nothing.
type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestPodProcessOutputIsLost(t *testing.T) {
	p, _ := process(t, "\x01x")
	if err := p.Follow(brokenWriter{}, io.Discard); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

// slowWriter takes long for what it is given first.
type slowWriter struct {
	bytes.Buffer
	takes time.Duration
}

func (w *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(w.takes)
	w.takes = 0
	return w.Buffer.Write(b)
}

// Output that nobody takes for longer than a peer may be silent, as a pager's, is not the peer's silence.
func TestPodProcessOutputIsTakenLate(t *testing.T) {
	const silence = 500 * time.Millisecond
	a, b := pair(t, Options{Silence: silence, PingPeriod: time.Minute}, Options{})
	output := bytes.Repeat([]byte("0123456789"), frameBuffer/4)
	sent := make(chan error, 1)
	go func() {
		_, err := Packets{b}.Write(append([]byte{processStdout}, output[:MaxPacket-1]...))
		if err == nil {
			_, err = Packets{b}.Write([]byte("\x03" + exited("3")))
		}
		sent <- err
	}()
	out := &slowWriter{takes: 3 * silence}
	err := PodProcess{a}.Follow(out, io.Discard)
	var exit *ProcessExitError
	if !errors.As(err, &exit) || exit.Code != 3 || out.Len() != MaxPacket-1 {
		t.Errorf("%v, %d bytes of %d", err, out.Len(), MaxPacket-1)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestPodProcessWrite(t *testing.T) {
	p, far := process(t)
	input := bytes.Repeat([]byte("0123456789"), maxMessage/8)
	done := make(chan error, 1)
	go func() {
		_, err := p.Write(input)
		done <- errors.Join(err, p.Resize(80, 24), p.EndInput())
	}()
	var got []byte
	next := func() []byte {
		buffer := make([]byte, BufferSize)
		n, err := far.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return buffer[:n]
	}
	for len(got) < len(input) {
		part := next()
		if part[0] != 0 {
			t.Fatalf("channel %d", part[0])
		}
		got = append(got, part[1:]...)
	}
	if !bytes.Equal(got, input) {
		t.Error("the input is another")
	}
	if size := next(); string(size) != "\x04"+`{"Width":80,"Height":24}` {
		t.Errorf("%q", size)
	}
	if end := next(); string(end) != "\xff\x00" {
		t.Errorf("%q", end)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// FuzzProcessEnd reads words of nodes: an exit code is 1 to 255, and everything else an error in words.
func FuzzProcessEnd(f *testing.F) {
	f.Add([]byte(`{"status":"Success"}`))
	f.Add([]byte(exited("3")))
	f.Add([]byte(exited("-1")))
	f.Add([]byte(`{"status":"Failure","reason":"NonZeroExitCode"}`))
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := processEnd(data)
		var exit *ProcessExitError
		if errors.As(err, &exit) && (exit.Code < 1 || exit.Code > 255) {
			t.Errorf("exit code %d", exit.Code)
		}
		if err != nil && exit == nil && !errors.Is(err, ErrNotRun) {
			t.Errorf("%v is not ErrNotRun", err)
		}
	})
}
