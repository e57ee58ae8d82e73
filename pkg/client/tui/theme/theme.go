// Package theme has the looks of the dashboard: a style for each role that text can have, and the glyphs that not every
// terminal has. Pages name roles, never colours.
package theme

import (
	"image/color"
	"maps"
	"slices"

	"charm.land/lipgloss/v2"
)

// Roles returns the names of the roles that Options.Colours may change.
func Roles() []string { return slices.Sorted(maps.Keys(names)) }

// Role is the meaning of a piece of text.
type Role int

// The roles. Text is all that has no other.
const (
	Text Role = iota
	Dim
	Good
	Busy
	Warn
	Bad
	Accent
	Title
	Header
	Key
	Cursor
	Mark
	Border
	// Found is text that a search matches, FoundHere the match that was gone to.
	Found
	FoundHere
	// Selected is the page that is looked at, in the bar of pages.
	Selected
	roles
)

var names = map[string]Role{
	"dim": Dim, "good": Good, "busy": Busy, "warn": Warn, "bad": Bad, "accent": Accent, "title": Title,
	"header": Header, "key": Key, "cursor": Cursor, "mark": Mark, "border": Border,
	"found": Found, "found-here": FoundHere, "selected": Selected,
}

// Glyphs are the characters that ASCII has no like of.
type Glyphs struct {
	Bars           []string // from nothing to full
	Gap            string   // where a value is not known
	Full, Empty    string   // of a progress bar
	Up, Down       string   // the order a column is sorted in
	Mark, Ellipsis string
	Horizontal     string
	Vertical, Dot  string
	Arrow          string
	Done           string // before the line of an action that has ended well
	Thumb          string // the part of a scroll bar that is on the screen
	// States are before a state's name: good, busy, warning, bad, off.
	Good, Busy, Warn, Bad, Off string
	// Enter, Space and Shift are keys.
	Enter, Space, Shift string
}

var unicodeGlyphs = Glyphs{
	Bars: []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, Gap: "·", Full: "█", Empty: "░",
	Up: "↑", Down: "↓", Mark: "✓", Ellipsis: "…", Horizontal: "─", Vertical: "│", Dot: "·", Arrow: "→",
	Done: "✓", Thumb: "┃", Good: "●", Busy: "◐", Warn: "◆", Bad: "✗", Off: "○",
	Enter: "⏎", Space: "␣", Shift: "⇧",
}

var asciiGlyphs = Glyphs{
	Bars: []string{" ", ".", ":", "-", "=", "+", "*", "%", "#"}, Gap: "_", Full: "#", Empty: ".",
	Up: "^", Down: "v", Mark: "*", Ellipsis: "~", Horizontal: "-", Vertical: "|", Dot: ".", Arrow: "->",
	Done: "ok", Thumb: "#", Good: "+", Busy: "~", Warn: "!", Bad: "x", Off: "-",
	Enter: "Enter", Space: "Space", Shift: "S-",
}

// Theme is made once and then read only.
type Theme struct {
	Glyphs
	styles [roles]lipgloss.Style
	ascii  bool
	// Plain is whether there is no colour: the cursor and marks are then shown in reverse and bold.
	Plain bool
}

// Options choose a theme.
type Options struct {
	// Light is whether the terminal's background is.
	Light bool
	// NoColour uses bold, faint and reverse alone; ASCII no character beyond ASCII.
	NoColour, ASCII bool
	// Colours replace those of roles: names such as "good", values such as "2", "#00ff00".
	Colours map[string]string
}

// The terminal's own sixteen colours follow its scheme, so they are used wherever they can be read on both
// backgrounds.
var dark = map[Role]string{
	Dim: "8", Good: "2", Busy: "6", Warn: "3", Bad: "1", Accent: "14", Title: "15", Header: "8",
	Key: "14", Mark: "11", Border: "8", Found: "11", FoundHere: "11", Selected: "14",
}

var light = map[Role]string{
	Dim: "8", Good: "2", Busy: "4", Warn: "3", Bad: "1", Accent: "4", Title: "0", Header: "8",
	Key: "4", Mark: "5", Border: "7", Found: "5", FoundHere: "5", Selected: "4",
}

// New makes a theme.
func New(o Options) *Theme {
	t := &Theme{Glyphs: unicodeGlyphs, Plain: o.NoColour, ascii: o.ASCII}
	if o.ASCII {
		t.Glyphs = asciiGlyphs
	}
	colours := dark
	if o.Light {
		colours = light
	}
	for role := range roles {
		style := lipgloss.NewStyle()
		if c, ok := colours[role]; ok && !o.NoColour {
			style = style.Foreground(colour(c))
		}
		switch role {
		case Title, Key:
			style = style.Bold(true)
		case Header:
			style = style.Bold(true)
		case Cursor, Selected:
			style = style.Reverse(true)
		case Found:
			style = style.Underline(true)
		case FoundHere:
			style = style.Reverse(true).Bold(true)
		case Mark, Bad:
			style = style.Bold(true)
		case Dim, Border:
			if o.NoColour {
				style = style.Faint(true)
			}
		}
		t.styles[role] = style
	}
	for name, c := range o.Colours {
		if role, ok := names[name]; ok && !o.NoColour {
			t.styles[role] = t.styles[role].Foreground(colour(c))
		}
	}
	return t
}

func colour(s string) color.Color { return lipgloss.Color(s) }

// Style returns a role's style.
func (t *Theme) Style(r Role) lipgloss.Style { return t.styles[r] }

// State returns the glyph of a state that is good, busy, worth a warning, bad or off; of other roles there is none.
func (t *Theme) State(r Role) string {
	switch r {
	case Good:
		return t.Good
	case Busy:
		return t.Busy
	case Warn:
		return t.Warn
	case Bad:
		return t.Bad
	case Dim:
		return t.Off
	}
	return ""
}

// Paint gives text the look of a role.
func (t *Theme) Paint(r Role, text string) string {
	if r == Text || text == "" {
		return text
	}
	return t.styles[r].Render(text)
}
