package cli

import (
	"bytes"
	"testing"
)

// A server's warning has the word that all warnings have, is said once, and forges no line.
func TestServerWarnings(t *testing.T) {
	for tty, want := range map[bool]string{
		false: "warning: a is old\nwarning: b\n",
		true:  "\x1b[33mwarning\x1b[0m: a is old\n\x1b[33mwarning\x1b[0m: b\n",
	} {
		var out bytes.Buffer
		f := &Factory{IO: &IOStreams{ErrOut: &out, ErrIsTTY: tty, colour: true}}
		w := warnings(f.IO, &f.warnings)
		w.HandleWarningHeader(299, "-", "a is\nold")
		w.HandleWarningHeader(299, "-", "a is\nold")
		w.HandleWarningHeader(299, "-", "")
		w.HandleWarningHeader(199, "-", "of a proxy")
		w.HandleWarningHeader(299, "-", "b")
		f.Warn("a is\nold") // the command's own
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
