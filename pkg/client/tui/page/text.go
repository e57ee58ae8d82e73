package page

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Text is a page of lines to scroll in, read once and again with r: YAML, why, doctor.
type Text struct {
	world *World
	title string
	read  func(context.Context) ([]widget.Line, error)
	live  func() []widget.Line // instead of read, of what the dashboard knows itself
	lines []widget.Line
	err   error
	// reading is whether an answer is on its way; at is when the last one came. One that failed is asked for again.
	reading bool
	at      time.Time
	good    time.Time // when lines were read
	wrapped []string  // lines as they are drawn, for a width
	width   int
	keys    keymap.Map[*Text]
	window
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
	p.keys = keymap.Map[*Text]{
		{Keys: []string{"r"}, Name: "read again", Help: "ask the server again", Do: (*Text).Start},
		{Keys: []string{"ctrl+y"}, Name: "copy", Help: "copy the whole text", Do: func(p *Text) tea.Cmd {
			return Send(Copy{Text: p.String(), What: p.title})
		}},
	}
	p.keys = append(p.keys,
		scrolling[*Text](func(p *Text) *window { return &p.window })...)
	return p
}

// NewLive makes a page of lines that are made whenever something has changed, by the goroutine of the pages.
func NewLive(w *World, title string, lines func() []widget.Line) *Text {
	p := NewText(w, title, nil)
	p.live = lines
	return p
}

// Start reads the text.
func (p *Text) Start() tea.Cmd {
	if p.live != nil {
		p.Refresh()
		return nil
	}
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

// String returns the text without colours.
func (p *Text) String() string {
	var b strings.Builder
	for _, l := range p.lines {
		b.WriteString(ansi.Strip(l.Text) + "\n")
	}
	return b.String()
}

// Title returns the page's name.
func (p *Text) Title() string { return p.title }

// Refresh makes live lines anew; another text is of the time it was read.
func (p *Text) Refresh() {
	if p.live != nil {
		p.lines, p.wrapped, p.at = p.live(), nil, p.world.Now()
	}
}

// Wants reads again what could not be read, after a while.
func (p *Text) Wants() tea.Cmd {
	if p.err == nil || p.reading || p.world.Now().Sub(p.at) < again {
		return nil
	}
	return p.Start()
}

// State returns the state of the connection, and of what was read: with an error, what is shown is of the time before.
func (p *Text) State() store.State {
	if p.err != nil {
		return store.State{Synced: len(p.lines) > 0, Err: p.err, Since: p.good}
	}
	return connection(p.world)
}

// connection returns the state of a page whose own rows are not of the cluster: they can be believed, but nothing new
// comes and nothing can be done without a connection. Errors that the user may not read something, or that the server
// does not have it, say nothing about the connection.
func connection(w *World) store.State {
	state := w.Machines.State()
	if apierrors.IsForbidden(state.Err) || apierrors.IsNotFound(state.Err) {
		state = w.Pulse.State()
	}
	return store.State{Synced: true, Since: state.Since, Err: state.Err}
}

// Update takes what was read.
func (p *Text) Update(msg tea.Msg) tea.Cmd {
	if m, ok := msg.(textRead); ok && m.page == p {
		p.reading, p.err, p.at = false, m.err, p.world.Now()
		if m.err == nil {
			p.lines, p.wrapped, p.good = m.lines, nil, p.at
		}
	}
	return nil
}

// Key does what a key is bound to.
func (p *Text) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Text) Hints() []keymap.Hint { return p.keys.Hints(p) }

// View draws the lines that are scrolled to; those that are too long go on in the next.
func (p *Text) View(width, height int) string {
	t := p.world.Theme
	var head []string
	switch {
	case p.err != nil:
		for _, l := range widget.Wrap("  "+widget.Harmless(p.world.Say(p.err)), width-1, 0) {
			head = append(head, t.Paint(theme.Bad, l))
		}
	case len(p.lines) == 0 && p.at.IsZero():
		return t.Paint(theme.Dim, "  Reading …")
	case len(p.lines) == 0:
		return t.Paint(theme.Dim, "  There is nothing to show.")
	}
	if p.wrapped == nil || p.width != width {
		p.wrapped, p.width = nil, width
		for _, l := range p.lines {
			for _, part := range widget.Wrap(widget.Harmless(l.Text), width-1, l.Hang) {
				p.wrapped = append(p.wrapped, t.Paint(l.Role, part))
			}
		}
	}
	return strings.Join(append(head, p.view(t, p.wrapped, width, height-len(head))), "\n")
}
