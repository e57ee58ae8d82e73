package app

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// footerOf are the lines of the footer at a width, without the keys of every page.
func footerOf(a *App) []string {
	var out []string
	for _, line := range a.footer(a.theme()) {
		line, _, _ = strings.Cut(ansi.Strip(line), "/ find")
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return out
}

// TestFooterShowsWhatApplies has the keys that one uses most, those that do something now before the others, in as many
// lines wherever the cursor is.
func TestFooterShowsWhatApplies(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, tea.WindowSizeMsg{Width: 80, Height: 24})
	lines := map[string]string{}
	for range a.World.Machines.Rows() {
		p := a.top().Hints()
		status := "running"
		for _, h := range p {
			if h.Name == "start" && h.Why == "" {
				status = "stopped"
			}
		}
		got := footerOf(a)
		if len(got) != 2 {
			t.Errorf("%d lines: %q", len(got), got)
		}
		lines[status] = got[0]
		press(t, a, "down")
	}
	want := "⏎ details + new c console X stop R restart p pause"
	if got := lines["running"]; !strings.HasPrefix(got, want) {
		t.Errorf("of a guest that runs %q, not %q", got, want)
	}
	if got := lines["stopped"]; !strings.Contains(got, "S start") || strings.Contains(got, "c console") {
		t.Errorf("of one that does not %q", got)
	}
	drive(t, a, tea.WindowSizeMsg{Width: 80, Height: tallFrom - 1})
	if got := footerOf(a); len(got) != 1 {
		t.Errorf("a low screen has a footer of %q", got)
	}
	drive(t, a, tea.WindowSizeMsg{Width: 300, Height: 40})
	if got := footerOf(a); len(got) != 1 || !strings.Contains(got[0], "delete") {
		t.Errorf("a wide screen has a footer of %q", got)
	}
}

// TestFooterReadOnly has every key that changes something after those that do not.
func TestFooterReadOnly(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	a.World.ReadOnly = true
	drive(t, a, tea.WindowSizeMsg{Width: 300, Height: 24})
	press(t, a, "down")
	got := footerOf(a)[0]
	if strings.Index(got, "X stop") < strings.Index(got, "y YAML") || !strings.Contains(got, "+ new") {
		t.Errorf("%q", got)
	}
}
