package page

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/store"
	"github.com/virtkit/virtkit/pkg/tui/keymap"
	"github.com/virtkit/virtkit/pkg/tui/theme"
	"github.com/virtkit/virtkit/pkg/tui/widget"
)

// Text is a page of lines to scroll in, read once and again with r: YAML, why, doctor.
type Text struct {
	world *World
	title string
	read  func(context.Context) ([]widget.Line, error)
	lines []widget.Line
	err   error
	// reading is whether an answer is on its way; at is when the last one came.
	reading bool
	at      time.Time
	offset  int
	height  int
	keys    keymap.Map[*Text]
}

// textRead is what a Text page has read.
type textRead struct {
	page  *Text
	lines []widget.Line
	err   error
}

// readLimit is the longest that reading a page may take.
const readLimit = 20 * time.Second

// NewText makes a page; Init of it reads.
func NewText(w *World, title string, read func(context.Context) ([]widget.Line, error)) *Text {
	p := &Text{world: w, title: title, read: read}
	scroll := func(help string, do func(), keys ...string) keymap.Binding[*Text] {
		return keymap.Binding[*Text]{Keys: keys, Help: help, Quiet: true, Do: func(*Text) tea.Cmd { do(); return nil }}
	}
	p.keys = keymap.Map[*Text]{
		{Keys: []string{"r"}, Name: "read again", Help: "ask the server again", Do: (*Text).Start},
		{Keys: []string{"ctrl+y"}, Name: "copy", Help: "copy the whole text", Do: func(p *Text) tea.Cmd {
			return Send(Copy{Text: p.String(), What: p.title})
		}},
		scroll("one line down", func() { p.offset++ }, "down", "j"),
		scroll("one line up", func() { p.offset-- }, "up", "k"),
		scroll("one page down", func() { p.offset += p.height }, "pgdown", "space", "ctrl+f"),
		scroll("one page up", func() { p.offset -= p.height }, "pgup", "ctrl+b"),
		scroll("to the beginning", func() { p.offset = 0 }, "home", "g"),
		scroll("to the end", func() { p.offset = len(p.lines) }, "end", "G"),
	}
	return p
}

// Start reads the text.
func (p *Text) Start() tea.Cmd {
	if p.reading {
		return nil
	}
	p.reading = true
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), readLimit)
		defer cancel()
		lines, err := p.read(ctx)
		return textRead{p, lines, err}
	}
}

// String is the text without colours.
func (p *Text) String() string {
	var b strings.Builder
	for _, l := range p.lines {
		b.WriteString(ansi.Strip(l.Text) + "\n")
	}
	return b.String()
}

// Title is the page's name.
func (p *Text) Title() string { return p.title }

// Refresh does nothing: a text is of the time it was read.
func (p *Text) Refresh() {}

// State is that of a text that was read.
func (p *Text) State() store.State {
	return store.State{Synced: p.err == nil && !p.at.IsZero(), Err: p.err}
}

// Update takes what was read.
func (p *Text) Update(msg tea.Msg) tea.Cmd {
	if m, ok := msg.(textRead); ok && m.page == p {
		p.reading, p.err, p.at = false, m.err, p.world.Now()
		if m.err == nil {
			p.lines = m.lines
		}
	}
	return nil
}

// Key does what a key is bound to.
func (p *Text) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints are the page's keys.
func (p *Text) Hints() []keymap.Hint { return p.keys.Hints(p) }

// View draws the lines that are scrolled to.
func (p *Text) View(width, height int) string {
	t := p.world.Theme
	head := ""
	switch {
	case p.err != nil:
		head = t.Paint(theme.Bad, widget.Pad(t, "  "+widget.Harmless(p.err.Error()), width)) + "\n"
		height--
	case len(p.lines) == 0:
		return t.Paint(theme.Dim, "  Reading …")
	}
	p.height = max(1, height)
	p.offset = max(0, min(p.offset, len(p.lines)-p.height))
	var out []string
	for _, l := range p.lines[p.offset:min(len(p.lines), p.offset+p.height)] {
		out = append(out, t.Paint(l.Role, widget.Pad(t, widget.Harmless(l.Text), width)))
	}
	return head + strings.Join(out, "\n")
}
