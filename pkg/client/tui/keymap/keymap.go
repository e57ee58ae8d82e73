// Package keymap binds keys to what they do. One definition handles a key, is shown in the footer, and stands in the
// help page, so that none of them can drift from the others.
package keymap

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// Binding is the action of one or more keys on a model.
type Binding[M any] struct {
	// Keys as Bubble Tea spells them: "q", "ctrl+d", "enter". The first is shown.
	Keys []string
	// Name is one or two words for the footer; Help a sentence for the help page.
	Name, Help string
	// Called is Name where that depends on the model; nil has Name.
	Called func(M) string
	// Allowed says why the key does nothing now; nil and "" mean it does.
	Allowed func(M) string
	// Do is what it does.
	Do func(M) tea.Cmd
	// Quiet keys are in the help page, not in the footer.
	Quiet bool
}

// Map is the bindings of a model, in the order they are shown.
type Map[M any] []Binding[M]

// Of makes bindings of another model, for which of gives the one that they are about.
func Of[M, N any](bindings Map[N], of func(M) N) Map[M] {
	out := make(Map[M], 0, len(bindings))
	for _, b := range bindings {
		bound := Binding[M]{
			Keys: b.Keys, Name: b.Name, Help: b.Help, Quiet: b.Quiet,
			Do: func(m M) tea.Cmd { return b.Do(of(m)) },
		}
		if b.Called != nil {
			bound.Called = func(m M) string { return b.Called(of(m)) }
		}
		if b.Allowed != nil {
			bound.Allowed = func(m M) string { return b.Allowed(of(m)) }
		}
		out = append(out, bound)
	}
	return out
}

// Hint is a binding as it is shown.
type Hint struct {
	// Code is the key as Bubble Tea spells it, Key as it is shown.
	Code, Key, Name, Help string
	// Why is not empty when the key does nothing now.
	Why   string
	Quiet bool
}

// Handle does what a key is bound to. known is whether it is bound; why is not empty when it does nothing now.
func (m Map[M]) Handle(model M, key string) (cmd tea.Cmd, known bool, why string) {
	for _, b := range m {
		if !slices.Contains(b.Keys, key) {
			continue
		}
		if b.Allowed != nil {
			if why := b.Allowed(model); why != "" {
				return nil, true, why
			}
		}
		return b.Do(model), true, ""
	}
	return nil, false, ""
}

// Hints returns the bindings as they are shown.
func (m Map[M]) Hints(model M) []Hint {
	var hints []Hint
	for _, b := range m {
		h := Hint{Code: b.Keys[0], Key: Spell(b.Keys...), Name: b.Name, Help: b.Help, Quiet: b.Quiet}
		if b.Called != nil {
			h.Name = b.Called(model)
		}
		if b.Allowed != nil {
			h.Why = b.Allowed(model)
		}
		hints = append(hints, h)
	}
	return hints
}

var spelled = strings.NewReplacer("ctrl+", "^", "space", "␣", "enter", "⏎", "shift+tab", "⇧tab", "pgdown", "PgDn",
	"pgup", "PgUp")

// Spell returns how keys are shown.
func Spell(keys ...string) string {
	out := make([]string, 0, len(keys))
	for _, k := range keys {
		out = append(out, spelled.Replace(k))
	}
	return strings.Join(out, " ")
}
