package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/action/editor"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Edit is the page of an object that is changed in the user's editor: it opens that at once, and then shows what the
// change would do and when, before it is applied. What the server rejects goes back into the editor, with the reason
// above it.
type Edit struct {
	world    *World
	resource string
	key      store.Key
	before   string
	after    string
	verdict  *diff.Object
	err      error
	state    editState
	kept     string // the file that has keptText, which was not stored
	keptText string
	keys     keymap.Map[*Edit]
	window
}

type editState int

const (
	editReading editState = iota
	editEditing
	editAsking
	editShown
)

// EditText hands the terminal to the user's editor with a text; what Done makes of the outcome is sent.
type EditText struct {
	Text string
	Done func(text string, err error) tea.Msg
}

type (
	editRead struct {
		page *Edit
		text string
		err  error
	}
	edited struct {
		page *Edit
		text string
		err  error
	}
	judged struct {
		page    *Edit
		verdict *diff.Object
		err     error
	}
	editApplied struct {
		page *Edit
		err  error
	}
)

// NewEdit makes the page.
func NewEdit(w *World, m *store.Machine) *Edit {
	p := &Edit{world: w, resource: resourceOf(m), key: m.Key()}
	p.keys = append(keymap.Map[*Edit]{
		{
			Keys: []string{"a", "enter"}, Name: "apply", Help: "have the server store the change",
			Allowed: func(p *Edit) string {
				switch {
				case p.state != editShown || p.verdict == nil:
					return "there is nothing to apply yet"
				case len(p.verdict.Changes) == 0:
					return "nothing would change"
				}
				return ""
			}, Do: (*Edit).apply,
		},
		{
			Keys: []string{"e"}, Name: "edit",
			Help: "back into the editor, with what was changed; an object that others have changed is read anew",
			Allowed: func(p *Edit) string {
				if p.state != editShown {
					return "it is being read"
				}
				return ""
			}, Do: (*Edit).again,
		},
	}, scrolling[*Edit](func(p *Edit) *window { return &p.window })...)
	return p
}

// Start reads the object.
func (p *Edit) Start() tea.Cmd {
	actions := p.world.Actions
	return limited(func(ctx context.Context) tea.Msg {
		text, err := actions.Object(ctx, p.resource, p.key.Namespace, p.key.Name)
		return editRead{p, text, err}
	})
}

// again opens the editor once more: with the text as it was left, or where that can no longer be stored, with the
// object as it is now.
func (p *Edit) again() tea.Cmd {
	if p.before != "" && !p.outdated() {
		return p.edit(p.after)
	}
	p.state, p.err, p.verdict = editReading, nil, nil
	return p.Start()
}

// outdated reports whether others have changed the object since it was read.
func (p *Edit) outdated() bool {
	var changed *diff.ChangedError
	return errors.As(p.err, &changed)
}

// keep writes a text that was not stored to a file, which the page names.
func (p *Edit) keep() {
	if p.after == p.before || p.after == p.keptText || p.world.KeepText == nil {
		return
	}
	name, err := p.world.KeepText(p.after)
	if err != nil {
		p.err = errors.Join(p.err, err)
		return
	}
	p.kept, p.keptText = name, p.after
}

// edit opens the editor. Errors are above the text as comments, which are taken away again.
func (p *Edit) edit(text string) tea.Cmd {
	p.state = editEditing
	var head strings.Builder
	head.WriteString("# Change " + p.key.String() +
		", save and leave: what the change does is shown before anything is done.\n")
	if p.err != nil {
		for line := range strings.SplitSeq(p.world.Say(p.err), "\n") {
			head.WriteString("# Error: " + widget.Harmless(line) + "\n")
		}
		head.WriteString("# Leave it as it is to change nothing.\n")
	}
	if p.kept != "" {
		head.WriteString("# What you typed before is in " + p.kept + "\n")
	}
	return Send(EditText{Text: head.String() +
		text, Done: func(text string, err error) tea.Msg { return edited{p, editor.Uncommented(text), err} }})
}

// Update goes from step to step.
func (p *Edit) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case editRead:
		if m.page != p {
			return nil
		}
		if p.err = m.err; m.err != nil {
			p.state = editShown
			return nil
		}
		p.before, p.after = m.text, m.text
		return p.edit(m.text)
	case edited:
		if m.page == p {
			return p.took(m.text, m.err)
		}
	case judged:
		if m.page != p {
			return nil
		}
		p.state, p.err, p.verdict = editShown, m.err, m.verdict
		switch {
		case m.err == nil:
		case p.outdated():
			p.keep()
		default:
			return p.edit(p.after)
		}
	case editApplied:
		if m.page == p && m.err == nil {
			return Send(Back{Of: p})
		}
		if m.page == p {
			p.state, p.err = editShown, m.err
			if p.outdated() {
				p.verdict = nil
			}
			p.keep()
		}
	}
	return nil
}

// took takes a text back from the editor.
func (p *Edit) took(text string, err error) tea.Cmd {
	p.state = editShown
	switch {
	case err != nil:
		p.err = fmt.Errorf("the editor: %w", err)
		return nil
	case text == p.before || strings.TrimSpace(text) == "":
		notice := "Nothing was changed"
		if p.kept != "" {
			notice += "; what you typed before is in " + p.kept
		}
		return Send(Back{Of: p, Notice: notice})
	case text == p.after && p.err != nil: // left as it was rejected
		p.keep()
		return nil
	}
	p.after, p.err, p.state, p.verdict = text, nil, editAsking, nil
	actions := p.world.Actions
	before := p.before
	return limited(func(ctx context.Context) tea.Msg {
		verdict, err := actions.Verdict(ctx, before, text)
		return judged{p, verdict, err}
	})
}

// words begin the command line that edits the same.
func (p *Edit) words() []string {
	switch p.resource {
	case "virtualmachines":
		return []string{p.world.Program, "edit", p.key.Name}
	case "virtualmachineinstances":
		return []string{p.world.Program, "edit", "vmi/" + p.key.Name}
	}
	return []string{"kubectl edit", p.resource, p.key.Name}
}

func (p *Edit) apply() tea.Cmd {
	actions, before, after := p.world.Actions, p.before, p.after
	task := Task{
		Line: p.world.Line(append(p.words(), "--namespace", p.key.Namespace)...),
		Do:   func(ctx context.Context) error { return actions.Apply(ctx, before, after) },
		Then: func(err error) tea.Msg { return editApplied{p, err} },
	}
	question := fmt.Sprintf("Change %d fields of %s?", len(p.verdict.Changes), p.key)
	if len(p.verdict.Changes) == 1 {
		question = fmt.Sprintf("Change a field of %s?", p.key)
	}
	for _, c := range p.verdict.Changes {
		if effects[string(c.Effect)] == theme.Warn {
			return Send(Ask{Question: question + " Not all takes effect at once.", Task: task})
		}
	}
	return Send(Ask{Question: question, Task: task})
}

// Title returns the page's name.
func (p *Edit) Title() string { return "edit " + p.key.String() }

// Refresh does nothing: what is edited is of the time it was read.
func (p *Edit) Refresh() {}

// State returns the state of the connection.
func (p *Edit) State() store.State { return connection(p.world) }

// Key does what a key is bound to.
func (p *Edit) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Edit) Hints() []keymap.Hint { return p.keys.Hints(p) }

// effects are how each time of effect is shown.
var effects = map[string]theme.Role{
	"live": theme.Good, "hotplug": theme.Good, "migration": theme.Warn,
	"restart": theme.Warn, "start": theme.Busy,
}

// View draws the change, field by field.
func (p *Edit) View(width, height int) string {
	t := p.world.Theme
	var lines []string
	switch {
	case p.err != nil:
		for _, l := range wrap(widget.Harmless(p.world.Say(p.err)), width-4) {
			lines = append(lines, "  "+t.Paint(theme.Bad, l))
		}
		lines = append(lines, p.wayOn(width)...)
	case p.state == editReading:
		lines = []string{t.Paint(theme.Dim, "  Reading …")}
	case p.state == editEditing:
		lines = []string{t.Paint(theme.Dim, "  It is in the editor.")}
	case p.state == editAsking:
		lines = []string{t.Paint(theme.Dim, "  Asking the server what that would do …")}
	case p.verdict != nil:
		lines = p.changes(width)
	}
	return p.view(t, lines, width, height)
}

// wayOn returns where the text is that was not stored, and what the key e does.
func (p *Edit) wayOn(width int) []string {
	t := p.world.Theme
	var lines []string
	if p.kept != "" {
		lines = append(lines, "")
		lines = append(lines, paragraph(t, theme.Text, "What you typed is in "+p.kept, width)...)
	}
	if p.outdated() {
		lines = append(lines, "")
		lines = append(lines, paragraph(t, theme.Dim, "e reads the object anew and opens that.", width)...)
	}
	return lines
}

func (p *Edit) changes(width int) []string {
	t := p.world.Theme
	if len(p.verdict.Changes) == 0 {
		return []string{t.Paint(theme.Dim, "  Nothing would change.")}
	}
	state := "does not run"
	if p.verdict.Running {
		state = "runs"
	}
	lines := []string{t.Paint(theme.Title,
		fmt.Sprintf("  What would change of %s, which %s, and when that takes effect", p.key, state)), ""}
	for _, c := range p.verdict.Changes {
		lines = append(lines,
			"  "+t.Paint(effects[string(c.Effect)], widget.Pad(t, widget.Harmless(string(c.Effect)), 10))+
				widget.Pad(t, widget.Harmless(c.Path), max(10, width-14)))
		for _, l := range wrap(value(c.Before)+" "+t.Arrow+" "+value(c.After), width-16) {
			lines = append(lines, "              "+l)
		}
		if c.Note != "" {
			for _, l := range wrap(widget.Harmless(c.Note), width-16) {
				lines = append(lines, "              "+t.Paint(theme.Dim, l))
			}
		}
	}
	return lines
}

// value returns a field's value in one line of text.
func value(v any) string {
	if v == nil {
		return "nothing"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	text := []rune(widget.Harmless(string(data)))
	if len(text) > maxValue {
		return string(text[:maxValue]) + "..."
	}
	return string(text)
}

// maxValue is how much of a value is shown, characters.
const maxValue = 200
