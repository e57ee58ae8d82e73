package page

import (
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// option is one of the values that a field may have; its name is what is shown, and the empty value is the default.
type option struct{ value, name string }

// options returns options that are called as their values are.
func options(values []string) []option {
	var out []option
	for _, v := range values {
		out = append(out, option{v, v})
	}
	return out
}

// defaulted returns options of which the first is the default, and stands for no value.
func defaulted(values []string) []option {
	out := options(values)
	out[0].value = ""
	return out
}

// formField describes a field: how it is called, by the form and by the command line, and what it may be. One without
// options is typed.
type formField struct {
	title, flag, example string
	options              []option
	boolean              bool // whether the flag takes no value
}

// fieldWidth is the least width of the fields' titles.
const fieldWidth = 12

// titleWidth returns the width of the fields' titles.
func (s *fieldset) titleWidth() int {
	width := fieldWidth
	for _, f := range s.fields {
		width = max(width, len(f.title))
	}
	return width
}

// fieldset is the fields of a form, one below the other, and the one of them that keys go to.
type fieldset struct {
	fields []formField
	inputs []textinput.Model // of the fields that are typed
	chosen []string          // of the others
	at     int
	fitting
	// offers reports whether a field has one of its options now; nil offers all.
	offers func(i int, o option) bool
}

func newFieldset(w *World, fields []formField) fieldset {
	s := fieldset{
		fields: fields, inputs: make([]textinput.Model, len(fields)), chosen: make([]string, len(fields)),
	}
	for i := range s.inputs {
		input := textinput.New()
		input.Prompt, input.Placeholder, input.CharLimit = "", fields[i].example, 253
		input.SetStyles(fieldStyles(w, &input))
		s.inputs[i] = input
	}
	return s
}

// typed reports whether the field is typed rather than chosen.
func (s *fieldset) typed() bool { return s.fields[s.at].options == nil }

func (s *fieldset) moveTo(i int) tea.Cmd {
	s.inputs[s.at].Blur()
	s.at = (i + len(s.fields)) % len(s.fields)
	if !s.typed() {
		return nil
	}
	s.inputs[s.at].CursorEnd()
	return s.inputs[s.at].Focus()
}

// choose goes to another of a field's options.
func (s *fieldset) choose(by int) {
	var all []option
	for _, o := range s.fields[s.at].options {
		if s.offered(s.at, o) {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		return
	}
	at := slices.IndexFunc(all, func(o option) bool { return o.value == s.chosen[s.at] })
	s.chosen[s.at] = all[(at+by+len(all))%len(all)].value
}

func (s *fieldset) offered(i int, o option) bool { return s.offers == nil || s.offers(i, o) }

// value returns a field's value.
func (s *fieldset) value(i int) string {
	if s.fields[i].options != nil {
		return s.chosen[i]
	}
	return strings.TrimSpace(s.inputs[i].Value())
}

// words returns the flags of the fields that are filled in, from one of them on.
func (s *fieldset) words(from int) []string {
	var out []string
	for i := from; i < len(s.fields); i++ {
		switch f, value := &s.fields[i], s.value(i); {
		case value == "" || f.flag == "":
		case f.boolean:
			out = append(out, "--"+f.flag)
		default:
			out = append(out, "--"+f.flag, quoted(value))
		}
	}
	return out
}

// enter gives a message to the field that is typed into.
func (s *fieldset) enter(msg tea.Msg) tea.Cmd {
	var cmd tea.Cmd
	s.inputs[s.at], cmd = s.inputs[s.at].Update(msg)
	return cmd
}

// paste gives what was pasted to the field, if that is typed.
func (s *fieldset) paste(m tea.PasteMsg, give func(tea.Msg) tea.Cmd) tea.Cmd {
	if !s.typed() {
		return nil
	}
	return give(tea.PasteMsg{Content: strings.TrimSpace(m.Content)})
}

// typedOn gives a key of a page with fields to what it is bound to, and what is no key of the page to the field. In a
// field that is typed the keys that choose are the field's.
func typedOn[P any](
	p P, s *fieldset, keys keymap.Map[P], give func(tea.Msg) tea.Cmd, m tea.KeyPressMsg,
) (tea.Cmd, bool) {
	key := m.String()
	switch {
	case key == "esc" || key == "ctrl+c":
		return nil, false
	case s.typed() && slices.Contains([]string{"left", "right", "space"}, key):
		return give(m), true
	}
	cmd, known, why := keys.Handle(p, key)
	switch {
	case why != "":
		return Send(Notice{Text: Capital(why)}), true
	case known || !s.typed():
		return cmd, true
	}
	return give(m), true
}

// draw draws a field: what is typed, or what there is to choose with the choice in brackets.
func (s *fieldset) draw(t *theme.Theme, i, width int) string {
	f, role := &s.fields[i], theme.Dim
	if i == s.at {
		role = theme.Key
	}
	name := "  " + t.Paint(role, widget.Pad(t, f.title, s.titleWidth())) + " "
	if f.options == nil {
		s.inputs[i].SetWidth(max(8, width-s.titleWidth()-6))
		return widget.Pad(t, name+s.inputs[i].View(), width)
	}
	var words []string
	for _, o := range f.options {
		switch {
		case o.value == s.chosen[i]:
			words = append(words, t.Paint(role, "["+o.name+"]"))
		case s.offered(i, o):
			words = append(words, t.Paint(theme.Dim, " "+o.name+" "))
		}
	}
	return widget.Pad(t, name+strings.Join(words, " "), width)
}

// fieldStyles returns the styles of a form's field: what it shows while it is empty is dim, unlike a value.
func fieldStyles(w *World, input *textinput.Model) textinput.Styles {
	styles := input.Styles()
	styles.Cursor.Blink = false
	styles.Focused.Placeholder, styles.Blurred.Placeholder = w.Theme.Style(theme.Dim), w.Theme.Style(theme.Dim)
	return styles
}
