package theme

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Every role but Text, which has the terminal's own looks, has a name by which the user's configuration knows it, and
// only roles have.
func TestRoles(t *testing.T) {
	named := map[Role]string{}
	for name, role := range names {
		if other, twice := named[role]; twice || role < 0 || role >= roles {
			t.Errorf("%s is role %d, as %q is", name, role, other)
		}
		named[role] = name
	}
	others := int(roles) - 1
	if _, is := named[Text]; is || len(named) != others || len(Roles()) != others || !slices.IsSorted(Roles()) {
		t.Errorf("%d roles have names %v", roles, Roles())
	}
}

// A theme without colour writes none, whatever is configured; it tells roles by bold, faint, reverse and underline.
func TestNoColour(t *testing.T) {
	every := map[string]string{}
	for _, name := range Roles() {
		every[name] = "#00ff00"
	}
	for _, light := range []bool{false, true} {
		plain := New(Options{NoColour: true, Light: light, Colours: every})
		for role := range roles {
			got := plain.Paint(role, "x")
			if strings.Contains(got, "38;") || strings.Contains(got, "48;") || strings.Contains(got, "[3") {
				t.Errorf("role %d is %q", role, got)
			}
		}
		for _, role := range []Role{Cursor, Mark, Bad, Title, Found, FoundHere, Selected, Dim} {
			if plain.Paint(role, "x") == "x" {
				t.Errorf("role %d looks like text", role)
			}
		}
		coloured := New(Options{Light: light, Colours: map[string]string{"good": "#00ff00", "none": "1"}})
		if got := coloured.Paint(Good, "x"); !strings.Contains(got, "38;2;0;255;0") {
			t.Errorf("a configured colour is %q", got)
		}
		if coloured.Paint(Bad, "x") == coloured.Paint(Good, "x") || coloured.Paint(Text, "x") != "x" ||
			coloured.Paint(Bad, "") != "" {
			t.Errorf("bad %q, text %q", coloured.Paint(Bad, "x"), coloured.Paint(Text, "x"))
		}
	}
}

// A screen in ASCII has no other character, and each line keeps its width.
func TestWhole(t *testing.T) {
	unicode, ascii := New(Options{}), New(Options{ASCII: true})
	for screen, want := range map[string]string{
		"plain\n":              "plain\n",
		"┌─ web… → b ─┐":       "+- web~ > b -+",
		"\x1b[1mmüller\x1b[0m": "\x1b[1mm?ller\x1b[0m",
		"漢字":                   "????",
		"a\u0301b":             "ab",
		"👩\u200d💻!":            "??!",
		"▀▀":                   "  ",
		"bad \xff byte":        "bad ? byte",
	} {
		if got := unicode.Whole(screen); got != screen {
			t.Errorf("%q becomes %q without ASCII", screen, got)
		}
		got := ascii.Whole(screen)
		if got != want || strings.ContainsFunc(got, func(r rune) bool { return r >= utf8.RuneSelf }) {
			t.Errorf("%q becomes %q", screen, got)
		}
	}
	for _, text := range []string{"┌─ web… → b ─┐", "漢字", "👩\u200d💻!", "müller"} {
		if before, after := ansi.StringWidth(text), ansi.StringWidth(ascii.Whole(text)); before != after {
			t.Errorf("%q is %d wide, then %d", text, before, after)
		}
	}
}

// The glyphs of both sets are there; a state's and a cell's are one column wide, in ASCII also in bytes.
func TestGlyphs(t *testing.T) {
	unicode, ascii := New(Options{}), New(Options{ASCII: true})
	if len(unicode.Bars) != len(ascii.Bars) {
		t.Errorf("%d and %d bars", len(unicode.Bars), len(ascii.Bars))
	}
	for _, theme := range []*Theme{unicode, ascii} {
		cells := append([]string{
			theme.Gap, theme.Full, theme.Empty, theme.Up, theme.Down, theme.Mark, theme.Ellipsis, theme.Horizontal,
			theme.Vertical, theme.Dot, theme.Thumb,
		}, theme.Bars...)
		for _, role := range []Role{Good, Busy, Warn, Bad, Dim} {
			cells = append(cells, theme.State(role))
		}
		for _, cell := range cells {
			if ansi.StringWidth(cell) != 1 || theme == ascii && len(cell) != 1 {
				t.Errorf("glyph %q", cell)
			}
		}
	}
	if got := unicode.State(Title); got != "" {
		t.Errorf("a title has the glyph %q", got)
	}
	if got := ascii.Keys("⏎ ␣ ⇧tab ^d"); got != "Enter Space S-tab ^d" {
		t.Errorf("keys %q", got)
	}
}
