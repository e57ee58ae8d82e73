package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhile(t *testing.T) {
	failure := errors.New("no")
	for _, c := range []struct {
		name  string
		tty   bool
		takes time.Duration
		want  string
	}{
		{"quick", true, 500 * time.Millisecond, ""},
		{"slow", true, 2500 * time.Millisecond, "\rwaiting … 1s\rwaiting … 2s\r            \r"},
		{"no terminal", false, time.Minute, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				s := NoStreams()
				s.ErrOut, s.ErrIsTTY = &out, c.tty
				err := s.While("waiting", func() error {
					time.Sleep(c.takes)
					return failure
				})
				if !errors.Is(err, failure) || out.String() != c.want {
					t.Errorf("%v, %q", err, out.String())
				}
			})
		})
	}
	t.Run("narrow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			s := NoStreams()
			s.ErrOut, s.ErrIsTTY, s.OutIsTTY, s.width = &out, true, true, func() int { return 10 }
			if err := s.While(strings.Repeat("x", 80), func() error {
				time.Sleep(1500 * time.Millisecond)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if want := "\r" + strings.Repeat("x", 9) + "\r" + strings.Repeat(" ", 9) + "\r"; out.String() != want {
				t.Errorf("%q", out.String())
			}
		})
	})
}
