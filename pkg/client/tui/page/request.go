package page

import (
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
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
	verb   string
	fields []plugField
	inputs []textinput.Model // of the fields that are typed
	chosen []string          // of the others
	at     int
	// refuse says why it cannot be asked for; tell what would be done; ask asks whether it is to be.
	refuse func() string
	tell   func() []widget.Line
	ask    func() tea.Cmd
	// want reads what the others need, and hear takes what was read.
	want func() tea.Cmd
	hear func(tea.Msg)
	keys keymap.Map[*Request]
}

// newRequest makes a page of its fields; what else it does is its maker's to say.
func newRequest(w *World, title, verb string, fields []plugField) *Request {
	p := &Request{
		world: w, title: title, verb: verb, fields: fields,
		inputs: make([]textinput.Model, len(fields)), chosen: make([]string, len(fields)),
		want: func() tea.Cmd { return nil }, hear: func(tea.Msg) {},
	}
	for i := range p.inputs {
		input := textinput.New()
		input.Prompt, input.Placeholder, input.CharLimit = "", fields[i].example, 253
		styles := input.Styles()
		styles.Cursor.Blink = false
		input.SetStyles(styles)
		p.inputs[i] = input
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
	}
	return p
}

func (p *Request) typed() bool { return p.fields[p.at].options == nil }

func (p *Request) moveTo(i int) tea.Cmd {
	p.inputs[p.at].Blur()
	p.at = (i + len(p.fields)) % len(p.fields)
	if !p.typed() {
		return nil
	}
	p.inputs[p.at].CursorEnd()
	return p.inputs[p.at].Focus()
}

func (p *Request) choose(by int) {
	if p.typed() {
		return
	}
	all := p.fields[p.at].options
	at := slices.IndexFunc(all, func(o option) bool { return o.value == p.chosen[p.at] })
	p.chosen[p.at] = all[(at+by+len(all))%len(all)].value
}

// value is what a field has.
func (p *Request) value(i int) string {
	if p.fields[i].options != nil {
		return p.chosen[i]
	}
	return strings.TrimSpace(p.inputs[i].Value())
}

// words are the flags of the fields that are filled in, from one of them on.
func (p *Request) words(from int) []string {
	var out []string
	for i := from; i < len(p.fields); i++ {
		switch f, value := &p.fields[i], p.value(i); {
		case value == "" || f.flag == "":
		case f.boolean:
			out = append(out, "--"+f.flag)
		default:
			out = append(out, "--"+f.flag, quoted(value))
		}
	}
	return out
}

func (p *Request) give(msg tea.Msg) tea.Cmd {
	var cmd tea.Cmd
	p.inputs[p.at], cmd = p.inputs[p.at].Update(msg)
	return tea.Batch(cmd, p.want())
}

// Typed gives what is no key of the form to the field.
func (p *Request) Typed(m tea.KeyPressMsg) (tea.Cmd, bool) {
	key := m.String()
	switch {
	case key == "esc" || key == "ctrl+c":
		return nil, false
	case p.typed() && slices.Contains([]string{"left", "right", "space"}, key):
		return p.give(m), true
	}
	cmd, known, why := p.keys.Handle(p, key)
	switch {
	case why != "":
		return Send(Notice{Text: capital(why)}), true
	case known || !p.typed():
		return cmd, true
	}
	return p.give(m), true
}

// Title says what is asked for.
func (p *Request) Title() string { return p.title }

// Start reads what is needed.
func (p *Request) Start() tea.Cmd { return tea.Batch(p.inputs[p.at].Focus(), p.want()) }

// Refresh has nothing to read: what is said is of the rows there are.
func (p *Request) Refresh() {}

// Wants reads what is needed again when that has failed.
func (p *Request) Wants() tea.Cmd { return p.want() }

// Update takes what was read, and what was pasted.
func (p *Request) Update(msg tea.Msg) tea.Cmd {
	if m, ok := msg.(tea.PasteMsg); ok {
		if p.typed() {
			return p.give(tea.PasteMsg{Content: strings.TrimSpace(m.Content)})
		}
		return nil
	}
	p.hear(msg)
	return nil
}

// State is that of the connection.
func (p *Request) State() store.State { return connection(p.world) }

// Key does what a key is bound to.
func (p *Request) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints are the page's keys.
func (p *Request) Hints() []keymap.Hint { return p.keys.Hints(p) }

// View draws the fields, what keeps it from being asked for, and what would be done.
func (p *Request) View(width, height int) string {
	t := p.world.Theme
	var lines []string
	for i := range p.fields {
		lines = append(lines, p.field(i, width))
	}
	said := func(l widget.Line) {
		for _, part := range widget.Wrap("  "+widget.Harmless(l.Text), width-1, 2) {
			lines = append(lines, t.Paint(l.Role, part))
		}
	}
	lines = append(lines, "")
	if why := p.refuse(); why != "" {
		said(widget.Line{Text: capital(why) + ".", Role: theme.Warn})
	} else {
		said(widget.Line{Text: "^s " + p.verb + ", after a question.", Role: theme.Good})
	}
	lines = append(lines, "")
	for _, l := range p.tell() {
		said(l)
	}
	return strings.Join(lines[:min(len(lines), height)], "\n")
}

// field draws a field: what is typed, or what there is to choose with the choice in brackets.
func (p *Request) field(i, width int) string {
	t, f := p.world.Theme, &p.fields[i]
	role := theme.Dim
	if i == p.at {
		role = theme.Key
	}
	name := "  " + t.Paint(role, widget.Pad(t, f.title, plugNameWidth)) + " "
	if f.options == nil {
		p.inputs[i].SetWidth(max(8, width-plugNameWidth-6))
		return widget.Pad(t, name+p.inputs[i].View(), width)
	}
	var words []string
	for _, o := range f.options {
		if o.value == p.chosen[i] {
			words = append(words, t.Paint(role, "["+o.name+"]"))
		} else {
			words = append(words, t.Paint(theme.Dim, " "+o.name+" "))
		}
	}
	return widget.Pad(t, name+strings.Join(words, " "), width)
}
