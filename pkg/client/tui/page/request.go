package page

import (
	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Request is a page that asks for a snapshot, a restore or a clone: fields, and below them what would be done.
type Request struct {
	world *World
	title string
	// verb is what is done when it is submitted, for the key's help.
	verb string
	fieldset
	// refuse says why it cannot be asked for; describe what would be done; ask asks whether it is to be.
	refuse   func() string
	describe func() []widget.Line
	ask      func() tea.Cmd
	// want reads what the others need, and hear takes what was read.
	want func() tea.Cmd
	hear func(tea.Msg)
	keys keymap.Map[*Request]
}

// newRequest makes a page of its fields; what else it does is its maker's to say.
func newRequest(w *World, title, verb string, fields []formField) *Request {
	p := &Request{
		world: w, title: title, verb: verb, fieldset: newFieldset(w, fields),
		want: func() tea.Cmd { return nil }, hear: func(tea.Msg) {},
	}
	move := func(by int) func(*Request) tea.Cmd {
		return func(p *Request) tea.Cmd { return p.moveTo(p.at + by) }
	}
	choose := func(by int) func(*Request) tea.Cmd {
		return func(p *Request) tea.Cmd { p.choose(by); return nil }
	}
	p.keys = keymap.Map[*Request]{
		{
			Keys: []string{"ctrl+s"}, Name: "submit", Help: verb,
			Allowed: func(p *Request) string { return p.refuse() },
			Do:      func(p *Request) tea.Cmd { return p.ask() },
		},
		{Keys: []string{"enter", "tab", "down"}, Name: "next", Help: "the next field", Do: move(1)},
		{Keys: []string{"right", "space"}, Name: "change", Help: "another value of the field", Do: choose(1)},
		{Keys: []string{"left"}, Help: "the value before", Quiet: true, Do: choose(-1)},
		{Keys: []string{"up", "shift+tab"}, Help: "the field before", Quiet: true, Do: move(-1)},
		{
			Keys: []string{"pgdown"}, Help: "more of what is said below the fields", Quiet: true,
			Do: func(p *Request) tea.Cmd { p.offset += p.page; return nil },
		},
		{
			Keys: []string{"pgup"}, Help: "what is said before that", Quiet: true,
			Do: func(p *Request) tea.Cmd { p.offset -= p.page; return nil },
		},
	}
	return p
}

func (p *Request) give(msg tea.Msg) tea.Cmd { return tea.Batch(p.enter(msg), p.want()) }

// Typed gives what is no key of the form to the field.
func (p *Request) Typed(m tea.KeyPressMsg) (tea.Cmd, bool) {
	return typedOn(p, &p.fieldset, p.keys, p.give, m)
}

// Title returns what is asked for.
func (p *Request) Title() string { return p.title }

// Start reads what is needed.
func (p *Request) Start() tea.Cmd { return tea.Batch(p.inputs[p.at].Focus(), p.want()) }

// Refresh does nothing: what is said is of the rows there are.
func (p *Request) Refresh() {}

// Wants reads what is needed again when that has failed.
func (p *Request) Wants() tea.Cmd { return p.want() }

// Update takes what was read, and what was pasted.
func (p *Request) Update(msg tea.Msg) tea.Cmd {
	if m, ok := msg.(tea.PasteMsg); ok {
		return p.paste(m, p.give)
	}
	p.hear(msg)
	return nil
}

// State returns the state of the connection.
func (p *Request) State() store.State { return connection(p.world) }

// Key does what a key is bound to.
func (p *Request) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Request) Hints() []keymap.Hint { return p.keys.Hints(p) }

// View draws the fields, what keeps it from being asked for, and what would be done.
func (p *Request) View(width, height int) string {
	t := p.world.Theme
	var lines []string
	for i := range p.fields {
		lines = append(lines, p.draw(t, i, width))
	}
	role, verdict := theme.Good, "^s "+p.verb+", after a question."
	if why := p.refuse(); why != "" {
		role, verdict = theme.Warn, sentence(why)
	}
	var rest []string
	for _, l := range p.describe() {
		rest = append(rest, paragraph(t, l.Role, l.Text, width)...)
	}
	return joined(p.fit(t, lines, p.at, paragraph(t, role, verdict, width), rest, width, height))
}
