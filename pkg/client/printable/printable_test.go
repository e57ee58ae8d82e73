package printable

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile is every character that must not reach a terminal, but tab and line feed.
func hostile() []rune {
	all := []rune{0x7f, 0x061c, 0x200e, 0x200f, 0x2028, 0x2029}
	for _, span := range [][2]rune{{0, 0x1f}, {0x80, 0x9f}, {0x202a, 0x202e}, {0x2066, 0x2069}} {
		for r := span[0]; r <= span[1]; r++ {
			if r != '\t' && r != '\n' {
				all = append(all, r)
			}
		}
	}
	return all
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		"plain\ttext\nü 日本 👩‍💻 \\u001b":     "plain\ttext\nü 日本 👩‍💻 \\u001b",
		"\x1b[31mred\x1b[0m":                `\u001b[31mred\u001b[0m`,
		"\x1b]0;owned\x07":                  `\u001b]0;owned\u0007`,
		"\x1bPq\x1b\\":                      `\u001bPq\u001b\`,
		"safe\rrm -rf /":                    `safe\u000drm -rf /`,
		"dos\r\nlines\r\r\n":                "dos\nlines\\u000d\n",
		"back\b\b\bspace":                   `back\u0008\u0008\u0008space`,
		"nul\x00":                           `nul\u0000`,
		"\u009b31m":                         `\u009b31m`,
		"\x9b31m":                           `\x9b31m`,
		"cut \xe2\x80":                      `cut \xe2\x80`,
		"\xc0\x9b overlong":                 `\xc0\x9b overlong`,
		"admin\u202e\u2066gpj\u2069\u2028x": `admin\u202e\u2066gpj\u2069\u2028x`,
		"a replacement \ufffd stays":        "a replacement \ufffd stays",
	} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	for _, r := range hostile() {
		for _, f := range []func(string) string{Text, Line, Frame} {
			if got := f("a" + string(r) + "b"); strings.ContainsRune(got, r) {
				t.Errorf("%U survives: %q", r, got)
			}
		}
	}
}

func TestLine(t *testing.T) {
	if got := Line("one\ttwo\r\nthree\nfour\x1b"); got != `one two three four\u001b` {
		t.Errorf("%q", got)
	}
}

func TestFrame(t *testing.T) {
	for in, want := range map[string]string{
		"plain\nlines":                    "plain\nlines",
		"\x1b[1;38;2;1;2;3mown\x1b[m ü":   "\x1b[1;38;2;1;2;3mown\x1b[m ü",
		"\x1b[4:3munderlined":             "\x1b[4:3munderlined",
		"\x1b[2J":                         "\ufffd[2J",
		"\x1b]0;title\x07":                "\ufffd]0;title\ufffd",
		"\x1b[>4;1m":                      "\ufffd[>4;1m", // xterm's modifyOtherKeys
		"\x1b[1":                          "\ufffd[1",
		"tab\tcr\r":                       "tab\ufffdcr\ufffd",
		"\x9b2J\u009b2J\u202e":            "\ufffd2J\ufffd2J\ufffd",
		"\x1b[" + strings.Repeat("1", 99): "\ufffd[" + strings.Repeat("1", 99),
	} {
		if got := Frame(in); got != want {
			t.Errorf("Frame(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzClean holds what every cleaning promises: valid UTF-8, no character that a terminal obeys, text that is harmless
// unchanged, nothing changed the second time, and a length that is bounded.
func FuzzClean(f *testing.F) {
	for _, seed := range []string{
		"plain", "\x1b[31m", "\x1b]8;;http://evil\x1b\\link", "\x1bPtmux;\x1b\x1b", "a\r\nb\rc", "\x9b\xc2\x9b\u009b",
		"\xe2\x80\xae", "\u202e\u2028\u061c\x00\x7f\b",
	} {
		f.Add(seed)
	}
	bad := hostile()
	f.Fuzz(func(t *testing.T, in string) {
		harmless := utf8.ValidString(in) && !strings.ContainsFunc(in, Hostile)
		for name, clean := range map[string]func(string) string{"Text": Text, "Line": Line, "Frame": Frame} {
			out := clean(in)
			left := out
			if name == "Frame" {
				left = withoutSGR(out)
			}
			switch {
			case !utf8.ValidString(out):
				t.Errorf("%s(%q) = %q is no UTF-8", name, in, out)
			case strings.ContainsFunc(left, func(r rune) bool { return strings.ContainsRune(string(bad), r) }):
				t.Errorf("%s(%q) = %q has a control character", name, in, out)
			case name == "Line" && strings.ContainsAny(out, "\t\n"):
				t.Errorf("Line(%q) = %q has more than one line", in, out)
			case clean(out) != out:
				t.Errorf("%s(%q) = %q changes again to %q", name, in, out, clean(out))
			case harmless && out != in:
				t.Errorf("%s(%q) = %q, though it is harmless", name, in, out)
			case len(out) > MaxGrowth*len(in):
				t.Errorf("%s makes %d bytes of %d", name, len(out), len(in))
			}
		}
	})
}

// withoutSGR takes colours out the slow way, so that Frame is not tested by itself.
func withoutSGR(text string) string {
	parts := strings.Split(text, "\x1b[")
	for i, part := range parts[1:] {
		_, rest, _ := strings.Cut(part, "m")
		parts[i+1] = rest
		if sequence := part[:len(part)-len(rest)]; strings.Trim(sequence, "0123456789;:") != "m" {
			parts[i+1] = "\x1b" + part
		}
	}
	return strings.Join(parts, "")
}
