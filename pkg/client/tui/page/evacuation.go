package page

import (
	"cmp"
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// NewEvacuation is the page of what an evacuation of a node would do to each guest, with a key that does it.
func NewEvacuation(w *World, node string) *Text {
	var report *evacuate.Report
	p := NewText(w, "evacuation of "+node, func(ctx context.Context) ([]widget.Line, error) {
		r, err := w.Actions.EvacuationPlan(ctx, node)
		if err != nil {
			return nil, err
		}
		report = r
		return evacuationLines(r), nil
	})
	p.keys = append(keymap.Map[*Text]{{
		Keys: []string{"E"}, Name: "evacuate", Help: "keep new guests away, and have these leave",
		Allowed: func(p *Text) string {
			if w.ReadOnly {
				return readOnly
			}
			if p.at.IsZero() || p.err != nil {
				return "the plan is not there yet"
			}
			return ""
		}, Do: func(*Text) tea.Cmd {
			return Send(Ask{Question: evacuationQuestion(report), Task: Task{
				Line: w.line(w.Program, "evacuate", node, "--yes"),
				Do:   func(ctx context.Context) error { return w.Actions.Evacuate(ctx, report) },
			}})
		},
	}}, p.keys...)
	return p
}

func evacuationQuestion(r *evacuate.Report) string {
	down := 0
	for i := range r.Guests {
		if o := r.Guests[i].Outcome; o == evacuate.Restarts || o == evacuate.Ends {
			down++
		}
	}
	question := fmt.Sprintf("Evacuate node %s of its %d guests?", r.Node, len(r.Guests))
	if down > 0 {
		question += fmt.Sprintf(" %d will be shut down.", down)
	}
	return question
}

func evacuationLines(r *evacuate.Report) []widget.Line {
	if len(r.Guests) == 0 {
		return []widget.Line{{Text: "  No virtual machine runs on node " + r.Node +
			". It can be cordoned all the same.", Role: theme.Dim}}
	}
	lines := []widget.Line{{Text: "  What becomes of each guest, as far as can be told now", Role: theme.Title}}
	roles := map[evacuate.Outcome]theme.Role{
		evacuate.Stays: theme.Bad, evacuate.Restarts: theme.Warn,
		evacuate.Ends: theme.Warn,
	}
	for i := range r.Guests {
		g := &r.Guests[i]
		key := store.Key{Namespace: g.Namespace, Name: g.Name}
		text := fmt.Sprintf("  %-10s %-40s %s", g.Outcome, key, cmp.Or(g.Target, "-"))
		lines = append(lines, widget.Line{Text: text, Role: roles[g.Outcome]})
		if g.Reason != "" {
			lines = append(lines, widget.Line{Text: "             " + g.Reason, Role: theme.Dim})
		}
	}
	return lines
}
