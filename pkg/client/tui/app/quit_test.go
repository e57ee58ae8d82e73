package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// An action that was agreed to is sent before the dashboard ends, however soon q follows. A second q ends it at once,
// any other key keeps it, and so does an action that fails.
func TestQuitAfterAction(t *testing.T) {
	key := func(a *App, k rune) tea.Cmd {
		_, cmd := a.Update(tea.KeyPressMsg{Code: k, Text: string(k)})
		return cmd
	}
	quits := func(cmd tea.Cmd) bool {
		if cmd == nil {
			return false
		}
		_, is := cmd().(tea.QuitMsg)
		return is
	}
	for name, tc := range map[string]struct {
		keys  string
		fails error
		quits bool
	}{
		"answered":     {"q", nil, true},
		"failed":       {"q", errors.New("refused"), false},
		"another key":  {"qj", nil, false},
		"second key q": {"qjq", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(world(&fake{}))
			done := false
			task := page.Task{Line: "virtctl restart web", Do: func(context.Context) error {
				done = true
				return tc.fails
			}}
			a.Update(page.Ask{Question: "Restart?", Task: task})
			sent := key(a, 'y')
			var last tea.Cmd
			for _, k := range tc.keys {
				last = key(a, k)
			}
			if last != nil {
				_, cmd := a.Update(last())
				if quits(cmd) || !strings.Contains(a.notice, "q leaves at once") {
					t.Fatalf("before the answer: %q", a.notice)
				}
			}
			if got := a.Unanswered(); !slices.Equal(got, []string{"virtctl restart web"}) {
				t.Errorf("unanswered: %q", got)
			}
			_, cmd := a.Update(sent())
			if got := quits(cmd); got != tc.quits || !done || len(a.Unanswered()) > 0 {
				t.Errorf("quits %v, done %v, unanswered %q", got, done, a.Unanswered())
			}
		})
	}
	a := New(world(&fake{}))
	a.Update(page.Task{Line: "virtctl stop web", Do: func(context.Context) error { return nil }})
	key(a, 'q')
	if !quits(key(a, 'q')) {
		t.Error("a second q does not end it")
	}
	b := New(world(&fake{}))
	_, cmd := b.Update(key(b, 'q')())
	if !quits(cmd) {
		t.Error("with nothing to wait for, q does not end it")
	}
}
