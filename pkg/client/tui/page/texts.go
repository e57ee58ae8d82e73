package page

import (
	"context"
	"fmt"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// NewWhy returns the page of what holds a machine up.
func NewWhy(w *World, key store.Key) *Text {
	return NewText(w, "why "+key.String(), func(ctx context.Context) ([]widget.Line, error) {
		report, err := w.Actions.Why(ctx, key.Namespace, key.Name)
		if err != nil {
			return nil, err
		}
		return whyLines(report, w.Program), nil
	})
}

func whyLines(r *why.Report, program string) []widget.Line {
	roles := map[why.State]theme.Role{"ok": theme.Good, "waiting": theme.Busy, "broken": theme.Bad, "off": theme.Dim}
	lines := []widget.Line{{Text: "  " + r.Summary, Role: roles[r.Verdict]}, {}}
	for _, l := range r.Chain {
		lines = append(lines,
			widget.Line{
				Text: fmt.Sprintf("  %-8s %-40s %-8s %s", l.Layer, l.Object, l.State, l.Message),
				Role: roles[l.State], Hang: 61,
			})
	}
	title := "What blocks it"
	if r.Verdict == why.OK {
		title = "Remarks"
	}
	lines = append(lines, causes(title, r.Causes, roles, program)...)
	if r.Migration != nil {
		if r.Migration.Possible {
			lines = append(lines, widget.Line{}, widget.Line{Text: "  The guest can be migrated.", Role: theme.Good})
		} else {
			lines = append(lines, causes("Why it cannot be migrated", r.Migration.Obstacles, roles, program)...)
		}
	}
	for _, u := range r.Unreadable {
		lines = append(lines,
			widget.Line{Text: "  Not readable, and so perhaps hiding a cause: " + u, Role: theme.Warn})
	}
	return lines
}

func causes(title string, all []why.Cause, roles map[why.State]theme.Role, program string) []widget.Line {
	if len(all) == 0 {
		return nil
	}
	lines := []widget.Line{{}, {Text: "  " + title, Role: theme.Title}}
	for i, c := range all {
		lines = append(lines,
			widget.Line{Text: fmt.Sprintf("  %d. %s: %s", i+1, c.Object, c.Message), Role: roles[c.State], Hang: 5})
		if c.Evidence != "" {
			lines = append(lines, widget.Line{Text: "     " + c.Evidence, Role: theme.Dim})
		}
		for _, m := range c.Fixes {
			lines = append(lines, widget.Line{Text: "     " + action.Advice(program, m), Role: theme.Accent})
		}
	}
	return lines
}

// NewYAML returns the page of a machine's object.
func NewYAML(w *World, m *store.Machine) *Text { return newYAML(w, resourceOf(m), m.Key()) }

// resourceOf returns the API's plural of what a machine is.
func resourceOf(m *store.Machine) string {
	if m.Instance {
		return "virtualmachineinstances"
	}
	return "virtualmachines"
}

func newYAML(w *World, resource string, key store.Key) *Text {
	title := "YAML of " + strings.TrimPrefix(key.String(), "/")
	return NewText(w, title, func(ctx context.Context) ([]widget.Line, error) {
		text, err := w.Actions.Object(ctx, resource, key.Namespace, key.Name)
		return yamlLines(text), err
	})
}

// yamlLines dims what the server keeps for itself.
func yamlLines(text string) []widget.Line {
	lines := widget.Lines(text)
	section := ""
	for i := range lines {
		if l := lines[i].Text; l != "" && l[0] != ' ' && l[0] != '-' {
			section, _, _ = strings.Cut(l, ":")
		}
		if section == "status" {
			lines[i].Role = theme.Dim
		}
	}
	return lines
}

// NewHealth returns the page of what doctor finds.
func NewHealth(w *World) *Text {
	return NewText(w, "health of the stack", func(ctx context.Context) ([]widget.Line, error) {
		return doctorLines(w.Actions.Doctor(ctx), w.Program), nil
	})
}

func doctorLines(r *doctor.Report, program string) []widget.Line {
	roles := map[string]theme.Role{"ok": theme.Good, "warning": theme.Warn, "failed": theme.Bad}
	var lines []widget.Line
	area := doctor.Area("")
	for _, c := range r.Checks {
		if c.Area != area {
			if area != "" {
				lines = append(lines, widget.Line{})
			}
			area = c.Area
			lines = append(lines, widget.Line{Text: "  " + Capital(string(area)), Role: theme.Title})
		}
		message := c.Message
		if c.Object != "" && !strings.Contains(message, c.Object) {
			message = c.Object + ": " + message
		}
		lines = append(lines, widget.Line{
			Text: fmt.Sprintf("  %-8s %-22s %s", c.Status, c.Name, message),
			Role: roles[string(c.Status)], Hang: 34,
		})
		for _, m := range c.Fixes {
			lines = append(lines, widget.Line{Text: "           " + action.Advice(program, m), Role: theme.Accent})
		}
	}
	return lines
}
