package app

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// TestScreenshots keeps the pictures of docs/dashboard.md as the pages are.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{
		"machines": {"down"},
		"machine":  {"down", "enter"},
		"why":      {"w"},
		"question": {"*", "X"},
		"split":    {"down", "C", "'root"},
	} {
		w := world(&fake{})
		w.Theme = theme.New(theme.Options{})
		a := New(w)
		drive(t, a, tea.WindowSizeMsg{Width: 120, Height: 18})
		press(t, a, keys...)
		if name == "split" {
			shown(t, a, "ROOT")
		}
		file := filepath.Join("..", "..", "..", "..", "docs", "dashboard", name+".svg")
		got := svg(a.screen())
		a.Close()
		picture(t, file, got)
	}
}

// picture holds a file of the docs against what the pages look like.
func picture(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s is not as the page is; `go test ./pkg/client/tui/app -update` draws it anew", file)
	}
}

// The palette that a terminal with a dark background has, near enough.
var palette = map[string]string{
	"30": "#000000", "31": "#e06c75", "32": "#98c379", "33": "#e5c07b", "34": "#61afef", "35": "#c678dd",
	"36": "#56b6c2", "37": "#abb2bf",
	"90": "#7f848e", "91": "#ff7a85", "92": "#b5e890", "93": "#ffd68a", "94": "#7cc7ff", "95": "#e29bff",
	"96": "#7fe0ea", "97": "#ffffff",
}

const (
	cellWidth, cellHeight = 8.4, 18
	background, text      = "#1e2127", "#d7dae0"
)

var words = regexp.MustCompile(`\S+`)

// svg draws a frame.
func svg(frame string) string { return canvas(frame) + drawing(frame) + "</svg>\n" }

// still is a frame of a film, and how long it is shown, seconds.
type still struct {
	frame string
	lasts float64
}

// film shows frames one after the other, again and again.
func film(stills []still) string {
	whole := 0.0
	for _, s := range stills {
		whole += s.lasts
	}
	var b strings.Builder
	b.WriteString(canvas(stills[0].frame))
	from := 0.0
	for _, s := range stills {
		to := from + s.lasts
		fmt.Fprintf(&b,
			`<g visibility="hidden"><animate attributeName="visibility" calcMode="discrete" dur="%.1fs" repeatCount="indefinite" values="hidden;visible;hidden" keyTimes="0;%.4f;%.4f"/>`+"\n",
			whole, from/whole, min(to/whole, 0.9999))
		b.WriteString(drawing(s.frame) + "</g>\n")
		from = to
	}
	return b.String() + "</svg>\n"
}

// canvas begins a picture as large as a frame.
func canvas(frame string) string {
	lines := strings.Split(frame, "\n")
	return fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14" xml:space="preserve">`+"\n"+
			`<rect width="100%%" height="100%%" rx="6" fill="%s"/>`+"\n",
		float64(ansi.StringWidth(lines[0]))*cellWidth+16, len(lines)*cellHeight+16, background)
}

// drawing draws a frame's text. It knows the attributes that themes use: bold, underline, reverse, and the sixteen
// colours.
func drawing(frame string) string {
	lines := strings.Split(frame, "\n")
	var b strings.Builder
	for y, line := range lines {
		colour, bold, reverse := text, false, false
		x := 0
		for line != "" {
			if rest, ok := strings.CutPrefix(line, "\x1b["); ok {
				parameters, after, _ := strings.Cut(rest, "m")
				line = after
				for code := range strings.SplitSeq(parameters, ";") {
					switch code {
					case "", "0":
						colour, bold, reverse = text, false, false
					case "1":
						bold = true
					case "7":
						reverse = true
					default:
						if c, ok := palette[code]; ok {
							colour = c
						}
					}
				}
				continue
			}
			run, _, _ := strings.Cut(line, "\x1b")
			line = line[len(run):]
			width := ansi.StringWidth(run)
			left, top := 8+float64(x)*cellWidth, 8+y*cellHeight
			x += width
			front := colour
			if reverse {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, top,
					float64(width)*cellWidth, cellHeight, colour)
				front = background
			}
			weight := ""
			if bold {
				weight = ` font-weight="bold"`
			}
			// Spaces are drawn by leaving them out, and the width of the rest is said: not every font has cells as wide
			// as ours.
			for _, at := range words.FindAllStringIndex(run, -1) {
				word := run[at[0]:at[1]]
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" textLength="%.1f" fill="%s"%s>%s</text>`+"\n",
					left+float64(ansi.StringWidth(run[:at[0]]))*cellWidth, top+cellHeight-5,
					float64(ansi.StringWidth(word))*cellWidth, front, weight, html.EscapeString(word))
			}
		}
	}
	return b.String()
}
