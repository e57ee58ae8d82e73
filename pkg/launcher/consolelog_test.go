package launcher

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConsoleLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial0.log")
	var got bytes.Buffer
	c := consoleLog{path: path, to: &got}
	look := func() {
		t.Helper()
		if err := c.copy(); err != nil {
			t.Fatal(err)
		}
	}
	want := ""
	say := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		want += text
	}
	look() // there is none yet
	say("booting\r\n")
	look()
	for i := range 3000 {
		say(fmt.Sprintf("line %d\r\n", i))
	}
	look()
	say("before the cut\r\n")
	if _, err := cut(path, 8<<10, 4<<10); err != nil {
		t.Fatal(err)
	}
	say("login: ")
	look()
	look()
	if got.String() != want {
		t.Errorf("got %d bytes, want %d; the end is %q", got.Len(), len(want), got.String()[max(0, got.Len()-60):])
	}

	// More than is kept was written since the last look: what is kept is told.
	say(strings.Repeat("x", 8<<10))
	if _, err := cut(path, 8<<10, 1<<10); err != nil {
		t.Fatal(err)
	}
	got.Reset()
	look()
	if got.String() != strings.Repeat("x", 1<<10) {
		t.Errorf("%d bytes", got.Len())
	}

	// The last words are told at the end.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got.Reset()
	say("halted\n")
	if err := c.follow(ctx, make(chan time.Time)); err != nil || got.String() != "halted\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}
