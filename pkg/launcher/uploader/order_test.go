package uploader

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// FuzzOrder feeds first lines: one that is taken names a session that could be one, is of bounded length, and what
// follows it is the image.
func FuzzOrder(f *testing.F) {
	const image = "the bytes of the image"
	f.Add(uploads.Encode(uploads.Order{Send: true, Session: "aa"}))
	f.Add(`{"session": "not hexadecimal"}`)
	f.Add(strings.Repeat(" ", uploads.MaxLine))
	f.Add("{}\n{}")
	f.Fuzz(func(t *testing.T, line string) {
		in := bufio.NewReader(strings.NewReader(line + "\n" + image))
		order, err := readOrder(in)
		if err != nil {
			return
		}
		if uploads.CheckSession(order.Session) != nil {
			t.Errorf("session %q", order.Session)
		}
		first, rest, _ := strings.Cut(line, "\n")
		if len(first) > uploads.MaxLine {
			t.Errorf("a line of %d bytes is taken", len(first))
		}
		want := image
		if strings.Contains(line, "\n") {
			want = rest + "\n" + image
		}
		if left, err := io.ReadAll(in); err != nil || string(left) != want {
			t.Errorf("left %q, want %q: %v", left, want, err)
		}
	})
}

// A session that a client could not have been given is no order.
func TestOrderOfNobody(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"send": true, "session": "aa"}`: true, `{"send": true}`: true,
		`{"send": true, "session": "` + strings.Repeat("a", 65) + `"}`: false, `{"session": "x y"}`: false, "": false,
	} {
		if _, err := readOrder(bufio.NewReader(strings.NewReader(line + "\n"))); (err == nil) != ok {
			t.Errorf("%s: %v", line, err)
		}
	}
}
