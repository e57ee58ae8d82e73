package keymap

import (
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// model notes what its keys have done.
type model struct {
	done   []string
	locked string
}

func bindings() Map[*model] {
	do := func(what string) func(*model) tea.Cmd {
		return func(m *model) tea.Cmd {
			m.done = append(m.done, what)
			return func() tea.Msg { return what }
		}
	}
	return Map[*model]{
		{
			Keys: []string{"d", "ctrl+d"}, Name: "delete", Help: "Delete it.", Do: do("delete"),
			Allowed: func(m *model) string { return m.locked },
		},
		{Keys: []string{"d"}, Name: "never", Do: do("never")},
		{Keys: []string{"enter"}, Name: "open", Do: do("open"), Quiet: true},
	}
}

// outer is a model that has the model of the bindings.
type outer struct{ inner *model }

// TestHandle has what a key does: the first binding that has it, unless that says why not; also for another model.
func TestHandle(t *testing.T) {
	of := Of(bindings(), func(o outer) *model { return o.inner })
	for _, test := range []struct {
		key, locked string
		known       bool
		done, why   string
	}{
		{key: "d", known: true, done: "delete"},
		{key: "ctrl+d", known: true, done: "delete"},
		{key: "d", locked: "it moves", known: true, why: "it moves"},
		{key: "enter", locked: "it moves", known: true, done: "open"},
		{key: "D"},
		{key: ""},
	} {
		for name, handle := range map[string]func(*model) (tea.Cmd, bool, string){
			"own":     func(m *model) (tea.Cmd, bool, string) { return bindings().Handle(m, test.key) },
			"another": func(m *model) (tea.Cmd, bool, string) { return of.Handle(outer{m}, test.key) },
		} {
			m := &model{locked: test.locked}
			cmd, known, why := handle(m)
			said := ""
			if cmd != nil {
				said = cmd().(string)
			}
			if known != test.known || why != test.why || strings.Join(m.done, " ") != test.done || said != test.done {
				t.Errorf("%s, key %q: known %t, why %q, done %v, command %q", name, test.key, known, why, m.done, said)
			}
		}
	}
}

// TestHints shows the bindings in their order, spelled, with why one does nothing; those of another model are the same.
func TestHints(t *testing.T) {
	want := []Hint{
		{Code: "d", Key: "d ^d", Name: "delete", Help: "Delete it.", Why: "it moves"},
		{Code: "d", Key: "d", Name: "never"},
		{Code: "enter", Key: "⏎", Name: "open", Quiet: true},
	}
	m := &model{locked: "it moves"}
	of := Of(bindings(), func(o outer) *model { return o.inner })
	own, another := bindings().Hints(m), of.Hints(outer{m})
	if !slices.Equal(own, want) || !slices.Equal(another, want) {
		t.Errorf("%+v and %+v", own, another)
	}
	if len(m.done) > 0 {
		t.Errorf("to show them does %v", m.done)
	}
	if got := Spell("ctrl+d", "space", "shift+tab", "pgup", "g"); got != "^d ␣ ⇧tab PgUp g" {
		t.Errorf("%q", got)
	}
}
