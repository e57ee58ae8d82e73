package cli

import (
	"bytes"
	"testing"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"login: \x1b[6n":                         "login: ",
		"\x1b]0;owned\x07text\r\n":               "text\n",
		"\x1b]52;c;ZWNobw==\x1b\\after":          "after",
		"\x1b(Bplain\x1b[1;31mred\x1b[0m\ttab":   "plainred\ttab",
		"bell\x07 del\x7f nul\x00 \u00fc \u65e5": "bell del nul \u00fc \u65e5",
		"\x1bP+q544e\x1b\\dcs \x1b_G\x1b\\apc":   "dcs apc",
		"broken \x1b]0;never ends\nnext line":    "broken next line",
	} {
		for _, size := range []int{1, 3, len(in)} {
			var out bytes.Buffer
			w := Plain(&out)
			for rest := []byte(in); len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := w.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if out.String() != want {
				t.Errorf("%q in pieces of %d gives %q, want %q", in, size, out.String(), want)
			}
		}
	}
}
