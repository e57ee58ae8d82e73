package console

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRecorder(t *testing.T) {
	var b bytes.Buffer
	clock := time.Unix(1000, 0)
	tick := func(d time.Duration) { clock = clock.Add(d) }
	r, err := NewRecorder(&b, func() time.Time { return clock }, 100, 30, "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { _, err := r.Write([]byte("<a>\x1b[1m\xe2\x82")); return err }, // half a euro sign
		func() error { tick(1500 * time.Millisecond); _, err := r.Write([]byte("\xac\r\n")); return err },
		func() error { tick(time.Second); return r.Resize(120, 40) },
		func() error { _, err := r.Write([]byte("\xff!\xe2")); return err },
		r.Close,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"version":2,"width":100,"height":30,"timestamp":1000,"title":"demo"}
[0.000000,"o","<a>\u001b[1m"]
[1.500000,"o","€\r\n"]
[2.500000,"r","120x40"]
[2.500000,"o","` + "�" + `!"]
[2.500000,"o","` + "�" + `"]
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`plain`: "plain", `\r\n\t\e\\\"`: "\r\n\t\x1b\\\"", `\x1b\x3Z`: "\x1b\x03Z", `\0\101\400`: "\x00A",
		`\u20ac\U0001F600`: "€😀",
	} {
		got, err := Unescape(in)
		if in == `\0\101\400` {
			if err == nil {
				t.Error(`\400 is no byte`)
			}
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{`\`, `\q`, `\x`, `\u12`, `\UFFFFFFFF`} {
		if _, err := Unescape(in); err == nil {
			t.Errorf("%q is understood", in)
		}
	}
}

// Each text waits for the guest's silence after the one before.
func TestSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSends(2*time.Second, []byte("one"), []byte("two"))
		guest := s.Watch(io.Discard)
		start := time.Now()
		var got strings.Builder
		buf := make([]byte, 2)
		for {
			n, err := s.Read(buf)
			got.Write(buf[:n])
			if got.String() == "one" && time.Since(start) == 0 {
				go func() {
					time.Sleep(1500 * time.Millisecond)
					if _, err := io.WriteString(guest, "still talking"); err != nil {
						t.Error(err)
					}
				}()
			}
			if err != nil {
				break
			}
		}
		if got.String() != "onetwo" || time.Since(start) != 3500*time.Millisecond {
			t.Errorf("got %q after %s", got.String(), time.Since(start))
		}
	})
}
