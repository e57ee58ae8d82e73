package emulator

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
)

// text is the screen without colours, the cursor as "_" where that is asked for.
func text(t *Terminal) string {
	var lines []string
	for n := t.Lines() - t.height; n < t.Lines(); n++ {
		lines = append(lines, strings.TrimRight(ansi.Strip(t.Line(n, 0, t.width, true, false)), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func TestScreen(t *testing.T) {
	for name, c := range map[string]struct{ writes, want string }{
		"lines":                     {"one\r\ntwo", "one\ntwo"},
		"wraps":                     {"0123456789ab", "0123456789\nab"},
		"the last column waits":     {"0123456789\r\nx", "0123456789\nx"},
		"does not wrap":             {"\x1b[?7l0123456789ab", "012345678b"},
		"scrolls":                   {"1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5"},
		"written over":              {"hello\rj", "jello"},
		"backspace":                 {"ab\b\bx", "xb"},
		"tabs":                      {"a\tb", "a       b"},
		"a tab of one's own":        {"\x1b[4G\x1bH\r\tx", "   x"},
		"no tabs":                   {"\x1b[3g\ta", "         a"},
		"back a tab":                {"\t\x1b[Zx", "x"},
		"addressed":                 {"\x1b[2;3Hx\x1b[Hy", "y\n  x"},
		"moves stop at the ends":    {"\x1b[99;99Hx\x1b[99A\x1b[99Dy", "y\n\n\n         x"},
		"home of huge numbers":      {"\x1b[999999999999;99999999999Hx", "\n\n\n         x"},
		"erased to the end of line": {"hello\x1b[3G\x1b[K", "he"},
		"erased from the beginning": {"hello\x1b[3G\x1b[1K", "   lo"},
		"erased all":                {"a\r\nb\x1b[2J", ""},
		"erased below":              {"a\r\nb\r\nc\x1b[2;1H\x1b[J", "a"},
		"erased above":              {"aa\r\nbb\r\ncc\x1b[2;1H\x1b[1J", "\n b\ncc"},
		"characters erased":         {"hello\x1b[2G\x1b[2X", "h  lo"},
		"characters taken":          {"hello\x1b[2G\x1b[2P", "hlo"},
		"characters put between":    {"hello\x1b[2G\x1b[2@", "h  ello"},
		"inserted":                  {"hello\x1b[2G\x1b[4hXY", "hXYello"},
		"lines put between":         {"a\r\nb\r\nc\x1b[2;1H\x1b[L", "a\n\nb\nc"},
		"lines taken":               {"a\r\nb\r\nc\x1b[2;1H\x1b[M", "a\nc"},
		"a part scrolls":            {"top\x1b[2;3r\x1b[2;1Ha\r\nb\r\nc\x1b[4;1Hend", "top\nb\nc\nend"},
		"a part scrolls back":       {"\x1b[2;3r\x1b[2;1Ha\x1bMb", "\n b\na"},
		"origin":                    {"\x1b[2;3r\x1b[?6h\x1b[1;1Hx\x1b[9;1Hy", "\nx\ny"},
		"scrolled by hand":          {"a\r\nb\x1b[S", "b"},
		"scrolled back by hand":     {"a\x1b[T", "\na"},
		"repeated":                  {"ab\x1b[3b", "abbbb"},
		"repeated for ever":         {"a\x1b[99999999b", "aaaaaaaaaa\na"},
		"lines are drawn":           {"\x1b(0lqk\x1b(Bx", "┌─┐x"},
		"lines by shifting":         {"\x1b)0\x0eq\x0fq", "─q"},
		"the alternate screen":      {"main\x1b[?1049halt", "    alt"},
		"and back":                  {"main\x1b[?1049halt\x1b[?1049l!", "main!"},
		"cursor kept":               {"ab\x1b7\r\n\ncd\x1b8e", "abe\n\ncd"},
		"wide":                      {"名前x", "名前x"},
		"wide at the end":           {"012345678名", "012345678\n名"},
		"half of a wide one":        {"名\x1b[2Gx", " x"},
		"the other half of it":      {"名\rx", "x"},
		"combined":                  {"e\u0301x", "e\u0301x"},
		"combined at the end":       {"012345678e\u0301x", "012345678e\u0301\nx"},
		"nothing to combine with":   {"\u0301x", "x"},
		"combined without end": {
			"e" + strings.Repeat("\u0301", 99), "e" + strings.Repeat("\u0301", maxCombined),
		},
		"turned round":                {"a\u202eb\u2066c", "abc"},
		"control characters in UTF-8": {"a\u009b1mb", "a1mb"},
		"no UTF-8":                    {"a\xff\xfe\xc3(b", "a��(b"},
		"titles":                      {"\x1b]0;" + strings.Repeat("x", 99999) + "\ax", "x"},
		"what has no end":             {"\x1bP" + strings.Repeat("x", 99999) + "\x1b\\x", "x"},
		"reset":                       {"abc\x1b[5;5r\x1b[?7l\x1bcx", "x"},
		"soft reset":                  {"abc\x1b[?7l\x1b[2;3r\x1b[!px", "xbc"},
		"aligned":                     {"\x1b#8", "EEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE"},
	} {
		term := New(10, 4)
		for i := range len(c.writes) { // however it is cut in pieces
			if _, err := term.Write([]byte(c.writes[i : i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(c.want, text(term)); diff != "" && name != "no UTF-8" {
			t.Errorf("%s, -want +got\n%s", name, diff)
		}
		sound(t, term)
	}
}

func TestLook(t *testing.T) {
	for name, c := range map[string]struct{ writes, want string }{
		"none":        {"ab", "ab  "},
		"colour":      {"\x1b[31ma\x1b[0mb", "\x1b[31ma\x1b[mb  "},
		"bright":      {"\x1b[91;102ma", "\x1b[91;102ma\x1b[m   "},
		"indexed":     {"\x1b[38;5;200ma", "\x1b[38;5;200ma\x1b[m   "},
		"true":        {"\x1b[48;2;1;2;3ma", "\x1b[48;2;1;2;3ma\x1b[m   "},
		"with colons": {"\x1b[38:2::1:2:3ma\x1b[38:5:9mb", "\x1b[38;2;1;2;3ma\x1b[m\x1b[91mb\x1b[m  "},
		"attributes":  {"\x1b[1;4;7ma\x1b[22;24;27mb", "\x1b[1;4;7ma\x1b[mb  "},
		"waves":       {"\x1b[4:3ma\x1b[4:0mb", "\x1b[4ma\x1b[mb  "},
		"nonsense":    {"\x1b[38;5mab\x1b[38;7;1mc", "abc "},
		"background":  {"\x1b[44m\x1b[K", "\x1b[44m    \x1b[m"},
	} {
		term := New(4, 1)
		if _, err := term.Write([]byte(c.writes)); err != nil {
			t.Fatal(err)
		}
		if got := term.Line(0, 0, 4, false, false); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
		if plain := term.Line(0, 0, 4, true, false); strings.Contains(plain, "3") {
			t.Errorf("%s: %q has colours", name, plain)
		}
	}
	term := New(4, 1)
	fmt.Fprint(term, "ab\r")
	if got := term.Line(0, 0, 4, true, true); got != "\x1b[7ma\x1b[mb  " {
		t.Errorf("the cursor: %q", got)
	}
	fmt.Fprint(term, "\x1b[?25l")
	if got := term.Line(0, 0, 4, true, true); got != "ab  " {
		t.Errorf("no cursor: %q", got)
	}
}

func TestHistory(t *testing.T) {
	term := New(10, 2)
	for i := range 3 * maxHistory {
		fmt.Fprintf(term, "%d\r\n", i)
	}
	if n := term.Lines(); n < maxHistory || n > 2*maxHistory+2 {
		t.Errorf("%d lines", n)
	}
	if got := strings.TrimSpace(term.Line(term.Lines()-4, 0, 10, true, false)); got != fmt.Sprint(3*maxHistory-3) {
		t.Errorf("the last but three: %s", got)
	}
	fmt.Fprint(term, "\x1b[?1049h")
	if n := term.Lines(); n != 2 {
		t.Errorf("the alternate screen has %d lines", n)
	}
	fmt.Fprint(term, "\x1b[?1049l\x1b[3J")
	if n := term.Lines(); n != 2 {
		t.Errorf("%d lines after they were erased", n)
	}
}

func TestResize(t *testing.T) {
	term := New(10, 4)
	fmt.Fprint(term, "1\r\n2\r\n3\r\nfour")
	term.Resize(3, 2)
	if diff := cmp.Diff("3\nfou", text(term)); diff != "" {
		t.Error(diff)
	}
	if n := term.Lines(); n != 4 {
		t.Errorf("%d lines: what went is in the history", n)
	}
	term.Resize(8, 3)
	fmt.Fprint(term, "x")
	sound(t, term)
	term.Resize(0, 1<<30)
	sound(t, term)
}

func TestReplies(t *testing.T) {
	term := New(10, 4)
	fmt.Fprint(term, "ab\x1b[6n\x1b[c\x1b[5n\x1b[>c")
	if got, want := string(term.Replies()), "\x1b[1;3R\x1b[?6c\x1b[0n\x1b[>0;0;0c"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	fmt.Fprint(term, strings.Repeat("\x1b[6n", 9999))
	if n := len(term.Replies()); n > maxReplies || n == 0 {
		t.Errorf("%d bytes", n)
	}
}

func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		key         tea.KeyPressMsg
		application bool
		want        string
	}{
		"letter":         {tea.KeyPressMsg{Code: 'a', Text: "a"}, false, "a"},
		"capital":        {tea.KeyPressMsg{Code: 'a', Text: "A", Mod: tea.ModShift}, false, "A"},
		"umlaut":         {tea.KeyPressMsg{Code: 'ä', Text: "ä"}, false, "ä"},
		"alt":            {tea.KeyPressMsg{Code: 'a', Mod: tea.ModAlt}, false, "\x1ba"},
		"enter":          {tea.KeyPressMsg{Code: tea.KeyEnter}, false, "\r"},
		"backspace":      {tea.KeyPressMsg{Code: tea.KeyBackspace}, false, "\x7f"},
		"interrupt":      {tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}, false, "\x03"},
		"escape":         {tea.KeyPressMsg{Code: tea.KeyEscape}, false, "\x1b"},
		"ctrl-space":     {tea.KeyPressMsg{Code: ' ', Mod: tea.ModCtrl}, false, "\x00"},
		"ctrl-backslash": {tea.KeyPressMsg{Code: '\\', Mod: tea.ModCtrl}, false, "\x1c"},
		"up":             {tea.KeyPressMsg{Code: tea.KeyUp}, false, "\x1b[A"},
		"up for editors": {tea.KeyPressMsg{Code: tea.KeyUp}, true, "\x1bOA"},
		"ctrl-left":      {tea.KeyPressMsg{Code: tea.KeyLeft, Mod: tea.ModCtrl}, false, "\x1b[1;5D"},
		"F1":             {tea.KeyPressMsg{Code: tea.KeyF1}, false, "\x1bOP"},
		"F12":            {tea.KeyPressMsg{Code: tea.KeyF12}, false, "\x1b[24~"},
		"delete":         {tea.KeyPressMsg{Code: tea.KeyDelete}, false, "\x1b[3~"},
		"back a tab":     {tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift}, false, "\x1b[Z"},
		"caps lock":      {tea.KeyPressMsg{Code: tea.KeyCapsLock}, false, ""},
	} {
		term := New(1, 1)
		if c.application {
			fmt.Fprint(term, "\x1b[?1h")
		}
		if got := term.Key(c.key); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
	term := New(1, 1)
	if got := term.Paste("a\nb\r\nc"); got != "a\rb\rc" {
		t.Errorf("pasted %q", got)
	}
	fmt.Fprint(term, "\x1b[?2004h")
	if got := term.Paste("a\x1b[201~b"); got != "\x1b[200~a[201~b\x1b[201~" {
		t.Errorf("pasted %q", got)
	}
}

// sound holds what is true of a screen whatever was written.
func sound(t *testing.T, term *Terminal) {
	t.Helper()
	for i, s := range term.screens {
		if len(s) != term.height {
			t.Fatalf("screen %d has %d lines, not %d", i, len(s), term.height)
		}
		for y, row := range s {
			if len(row) != term.width {
				t.Fatalf("line %d has %d cells, not %d", y, len(row), term.width)
			}
			for x, c := range row {
				if c.Wide != (x+1 < len(row) && row[x+1].Right) {
					t.Fatalf("line %d has half a character at %d: %+v", y, x, row)
				}
			}
		}
	}
	if term.x < 0 || term.x >= term.width || term.y < 0 || term.y >= term.height {
		t.Fatalf("the cursor is at %d, %d", term.x, term.y)
	}
	if term.top < 0 || term.top >= term.bottom || term.bottom > term.height {
		t.Fatalf("lines %d to %d scroll", term.top, term.bottom)
	}
	for n := range term.Lines() {
		line := term.Line(n, 0, term.width, false, true)
		if w := ansi.StringWidth(line); w != term.width {
			t.Fatalf("line %d is drawn %d cells wide, not %d: %q", n, w, term.width, line)
		}
		if strings.ContainsAny(ansi.Strip(line), "\x1b\r\n\a\u202e") {
			t.Fatalf("line %d: %q", n, line)
		}
	}
}

func FuzzTerminal(f *testing.F) {
	for _, s := range []string{
		"\x1b[?1049h名\x1b[2;3r\x1b[5L\x1b[9P", "\x1b[4h\x1b[999@\x1b[3bx\u0301", "\x1b[?6h\x1b[2147483648A\x1b8\x1b[r",
		"🇩🇪👩‍👩‍👧\x1b[K\b\b\x1b[1K", "\x1b#8\x1b[2G名\x1b[X\x1b[1;2;3;4;5m", "각 क्षि\x1b[38:2:::",
	} {
		f.Add([]byte(s), uint16(20), uint16(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, width, height uint16) {
		term := New(12, 4)
		if len(data) > 1<<12 {
			return
		}
		_, _ = term.Write(data[:len(data)/2])
		sound(t, term)
		term.Resize(int(width%64), int(height%16))
		sound(t, term)
		_, _ = term.Write(data[len(data)/2:])
		sound(t, term)
		if len(term.Replies()) > maxReplies {
			t.Fatal("more is answered than bounds allow")
		}
	})
}

// BenchmarkWrite is how fast a guest may write.
func BenchmarkWrite(b *testing.B) {
	term := New(120, 40)
	data := []byte(strings.Repeat("\x1b[32m[  OK  ]\x1b[0m Started something or other on this machine.\r\n", 100))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		_, _ = term.Write(data)
	}
}
