package editor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// script is an editor: a shell script, whose first argument is the file.
func script(t *testing.T, text string) Editor {
	t.Helper()
	name := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return Editor{Command: []string{name}}
}

// What an editor has saved before it was ended stays, and the error says where.
func TestEditEnded(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		cancel bool
	}{
		"by itself":      {"echo saved >\"$1\"; exit 3", false},
		"by a signal":    {"echo saved >\"$1\"; kill -TERM $$", false},
		"with us":        {"echo saved >\"$1\"; exec sleep 60", true},
		"with us, saves": {"trap 'exit 0' TERM; echo saved >\"$1\"; sleep 60 & wait; exit 0", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.cancel {
				go func() {
					for ctx.Err() == nil {
						files, _ := filepath.Glob(filepath.Join(os.TempDir(), "virtctl-edit-*"))
						if len(files) == 1 {
							if text, _ := os.ReadFile(files[0]); string(text) == "saved\n" {
								cancel()
							}
						}
						time.Sleep(time.Millisecond)
					}
				}()
			}
			_, err := script(t, test.script).Edit(ctx, "before\n")
			var kept *KeptError
			if !errors.As(err, &kept) {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(kept.Name); err != nil || string(text) != "saved\n" {
				t.Errorf("%s has %q, %v", kept.Name, text, err)
			}
		})
	}
}

// A file that the editor has removed is one error.
func TestEditRemoved(t *testing.T) {
	_, err := script(t, `rm "$1"`).Edit(t.Context(), "before\n")
	var joined interface{ Unwrap() []error }
	if !errors.Is(err, os.ErrNotExist) || errors.As(err, &joined) && len(joined.Unwrap()) > 1 {
		t.Error(err)
	}
}

// An editor that is ended while the terminal is raw leaves it as it was before.
func TestTerminalIsSettled(t *testing.T) {
	tty := terminal(t)
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	e := script(t, "stty raw -echo; echo saved >\"$1\"; kill -KILL $$")
	e.In = tty
	if _, err := e.Edit(t.Context(), "before\n"); err == nil {
		t.Error("an editor that is killed is no error")
	}
	after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if after.Lflag != before.Lflag || after.Iflag != before.Iflag || after.Oflag != before.Oflag {
		t.Errorf("local flags %#x, were %#x", after.Lflag, before.Lflag)
	}
}

// terminal is a terminal that nobody looks at.
func terminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty
}
