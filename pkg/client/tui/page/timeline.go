package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/events"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// eventsOf returns the events of a machine, its instance, its migrations and its pods, the newest first.
func eventsOf(w *World, key store.Key) []*store.Event {
	moves := map[string]string{}
	for _, m := range w.Migrations.Rows() {
		if m.Namespace == key.Namespace {
			moves[m.Name] = m.Machine
		}
	}
	out := slices.DeleteFunc(w.Events.Rows(), func(e *store.Event) bool {
		return e.Namespace != key.Namespace || !events.Of(e.Kind, e.Object, key.Name, moves)
	})
	slices.SortFunc(out, newest)
	return out
}

// newest orders events, the newest first.
func newest(a, b *store.Event) int {
	return cmp.Or(b.Last.Compare(a.Last), b.First.Compare(a.First), strings.Compare(a.Name, b.Name))
}

// Sizes of a timeline's parts, cells.
const (
	axisLeast  = 12 // the least axis that is worth drawing
	axisMost   = 48
	reasonMost = 24
	// timelineMost is how many events are drawn.
	timelineMost = 200
	// axisFrom is the least width with room for an axis besides the words.
	axisFrom = 72
)

// timeline draws events, one a line: how long ago, where that is between the first and now, what it is of, and what it
// says. The axis has a mark where an event happened last, and a line from where it happened first.
func timeline(t *theme.Theme, all []*store.Event, now time.Time, width int) []string {
	if len(all) == 0 {
		return []string{"  " + t.Paint(theme.Dim, widget.Pad(t, "none that the server still has", max(8, width-3)))}
	}
	older := max(0, len(all)-timelineMost)
	all = all[:len(all)-older]
	axis, what, reason := 0, 0, 0
	for _, e := range all {
		what = max(what, len(short(e.Kind)))
		reason = max(reason, min(reasonMost, ansi.StringWidth(widget.Harmless(e.Reason))))
	}
	if width >= axisFrom {
		axis = max(axisLeast, min(axisMost, width/5))
	}
	start := now
	for _, e := range all {
		if first := began(e); first.Before(start) {
			start = first
		}
	}
	var lines []string
	if axis > 0 {
		from, to := age(start, now)+" ago", "now"
		lines = append(lines, "         "+
			t.Paint(theme.Dim, from+strings.Repeat(" ", max(1, axis-len(from)-len(to)))+to))
	}
	for _, e := range all {
		line := "  " + t.Paint(theme.Dim, fmt.Sprintf("%5s", age(e.Last, now))) + "  "
		if axis > 0 {
			line += span(t, e, start, now, axis) + "  "
		}
		count := ""
		if e.Count > 1 {
			count = fmt.Sprintf(" (%d times)", e.Count)
		}
		line += t.Paint(theme.Dim, widget.Pad(t, short(e.Kind), what)) + "  " +
			t.Paint(eventRole(e), widget.Pad(t, widget.Harmless(e.Reason), reason)) + "  "
		lines = append(lines, line+
			t.Paint(eventRole(e),
				ansi.Truncate(widget.Harmless(e.Message+count), max(8, width-ansi.StringWidth(line)-1), t.Ellipsis)))
	}
	if older > 0 {
		lines = append(lines, "  "+t.Paint(theme.Dim, fmt.Sprintf("and %d before", older)))
	}
	return lines
}

// span draws where an event is between two times.
func span(t *theme.Theme, e *store.Event, start, now time.Time, width int) string {
	whole := now.Sub(start)
	at := func(when time.Time) int {
		if whole <= 0 {
			return width - 1
		}
		return max(0, min(width-1, int(float64(when.Sub(start))/float64(whole)*float64(width-1)+0.5)))
	}
	last := at(e.Last)
	first := min(at(began(e)), last)
	mark := t.Mark
	if e.Type == corev1.EventTypeWarning {
		mark = t.Warn
	}
	return t.Paint(theme.Border, strings.Repeat(t.Dot, first)+strings.Repeat(t.Horizontal, last-first)) +
		t.Paint(eventMark(e), mark) + t.Paint(theme.Border, strings.Repeat(t.Dot, width-1-last))
}

// began returns when an event happened first.
func began(e *store.Event) time.Time {
	if e.First.IsZero() {
		return e.Last
	}
	return e.First
}

func eventMark(e *store.Event) theme.Role {
	if e.Type == corev1.EventTypeWarning {
		return theme.Warn
	}
	return theme.Good
}

// short returns the kind of an event's object, in a word.
func short(kind string) string {
	switch kind {
	case "VirtualMachine":
		return "vm"
	case "VirtualMachineInstance":
		return "vmi"
	case "VirtualMachineInstanceMigration":
		return "vmim"
	case "VirtualMachineSnapshot":
		return "vmsnapshot"
	case "VirtualMachineRestore":
		return "vmrestore"
	case "VirtualMachineClone":
		return "vmclone"
	case "VirtualMachinePool":
		return "vmpool"
	case "VirtualMachineInstanceReplicaSet":
		return "vmirs"
	}
	return strings.ToLower(kind)
}
