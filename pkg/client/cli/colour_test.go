package cli

import (
	"strings"
	"testing"
)

func coloured(out *strings.Builder, on bool) *IOStreams {
	return (&IOStreams{Out: out, ErrOut: out, OutIsTTY: on, colour: true}).printers()
}

// A table in colour is the table without it, but for the colours; what a cell holds cannot add any.
func TestTableColour(t *testing.T) {
	print := func(on bool) string {
		var out strings.Builder
		s := coloured(&out, on)
		table := NewTable(s.Out)
		table.Colour(s, 1, func(cell string) Colour {
			return map[string]Colour{"Running": Green, "Failed": Red}[cell]
		})
		table.Row("NAME", "STATUS", "NODE")
		table.Row("Running", "Running", "node1")
		table.Row("a\x1b[31m", "Failed", "")
		table.Row("", "Failed", "Failed")
		table.Row("alone")
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	plain, painted := print(false), print(true)
	want := strings.Join([]string{
		"NAME          STATUS    NODE",
		"Running       \x1b[32mRunning\x1b[0m   node1",
		"a\\u001b[31m   \x1b[31mFailed\x1b[0m",
		"              \x1b[31mFailed\x1b[0m    Failed",
		"alone", "",
	}, "\n")
	if painted != want {
		t.Errorf("%q, want %q", painted, want)
	}
	for _, colour := range []string{"\x1b[32m", "\x1b[31m", "\x1b[0m"} {
		painted = strings.ReplaceAll(painted, colour, "")
	}
	if plain != painted {
		t.Errorf("without colour:\n%s\nwith:\n%s", plain, painted)
	}
}

func TestPrintMarks(t *testing.T) {
	marks := map[string]Colour{"ok": Green, "FAIL": Red}
	text := "ok\n  ok    all \x1b[1mwell\n  FAIL  ok\n  FAILED\n"
	for on, want := range map[bool]string{
		true:  "ok\n  \x1b[32mok\x1b[0m    all \\u001b[1mwell\n  \x1b[31mFAIL\x1b[0m  ok\n  FAILED\n",
		false: "ok\n  ok    all \\u001b[1mwell\n  FAIL  ok\n  FAILED\n",
	} {
		var out strings.Builder
		if err := coloured(&out, on).PrintMarks(text, marks); err != nil || out.String() != want {
			t.Errorf("%t: %q, %v; want %q", on, out.String(), err, want)
		}
	}
}
