package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Sizes of the page's parts, cells.
const (
	twoColumns  = 116 // the least width for two columns
	roomy       = 45  // the least height for tall graphs
	graphHeight = 4
	thumbHeight = 12
	consoleTail = 12
	// recentEvents is how many events stand in the second column; more of them are below, all with their times.
	recentEvents = 6
	nameWidth    = 14
	// conditionWidth is what comes before a condition's message, and conditionLines how many the message may have.
	conditionWidth = 42
	conditionLines = 4
)

// draw makes the whole page.
func (p *Machine) draw(width, height int) []string {
	if width < twoColumns {
		s := p.sections(width)
		all := [][]string{
			s.head(), s.usage(1), s.conditions(), s.disks(), s.interfaces(), s.guest(),
			s.console(consoleTail),
		}
		lines := p.withScreen(together(all), s.screen())
		return together([][]string{lines, s.events()})
	}
	left := (width - 2) / 2
	l, r := p.sections(left), p.sections(width-2-left)
	tall := graphHeight
	if height < roomy {
		tall /= 2
	}
	right := p.withScreen(together([][]string{r.usage(tall), r.recent(), r.console(consoleTail)}), r.screen())
	lines := beside(together([][]string{l.head(), l.disks(), l.interfaces(), l.conditions(), l.guest()}), right, left)
	if len(p.events) <= recentEvents {
		return lines
	}
	return together([][]string{lines, p.sections(width).events()})
}

// withScreen puts the guest's screen below other lines, and notes where it is.
func (p *Machine) withScreen(lines, picture []string) []string {
	if len(lines) > 0 && len(picture) > 0 {
		lines = append(lines, "")
	}
	p.thumb.from = len(lines)
	lines = append(lines, picture...)
	p.thumb.to = len(lines)
	return lines
}

// together puts sections one under the other, with a line between.
func together(sections [][]string) []string {
	var out []string
	for _, s := range sections {
		if len(s) == 0 {
			continue
		}
		if len(out) > 0 {
			out = append(out, "")
		}
		out = append(out, s...)
	}
	return out
}

// beside puts two columns side by side, the first as wide as asked.
func beside(left, right []string, width int) []string {
	out := make([]string, max(len(left), len(right)))
	for i := range out {
		l, r := "", ""
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		if out[i] = l; r != "" {
			out[i] = widget.Fill(l, width, 1) + "  " + r
		}
	}
	return out
}

// canvas is what parts of a page are drawn on: so wide, at a time.
type canvas struct {
	t     *theme.Theme
	width int
	now   time.Time
	say   func(error) string
}

func (w *World) canvas(width int) canvas { return canvas{w.Theme, width, w.Now(), w.Say} }

// sections draws the parts of the page.
type sections struct {
	*Machine
	canvas
}

func (p *Machine) sections(width int) sections { return sections{p, p.world.canvas(width)} }

func (s canvas) title(text string) string { return "  " + s.t.Paint(theme.Title, text) }

// line returns a line of a name and a value; none for an empty value.
func (s canvas) line(name, value string, role theme.Role) []string {
	if value == "" {
		return nil
	}
	return []string{"  " + s.t.Paint(theme.Dim, widget.Pad(s.t, widget.Harmless(name), nameWidth)) +
		s.t.Paint(role, s.cut(value, s.width-nameWidth-3))}
}

func (s canvas) cut(text string, width int) string {
	return ansi.Truncate(widget.Harmless(text), max(8, width), s.t.Ellipsis)
}

func (s canvas) dim(text string) string { return "  " + s.t.Paint(theme.Dim, s.cut(text, s.width-3)) }

// failed returns an error, whole.
func (s canvas) failed(err error) []string {
	lines := widget.Wrap("  "+widget.Harmless(s.say(err)), s.width-1, 0)
	for i := range lines {
		lines[i] = s.t.Paint(theme.Bad, lines[i])
	}
	return lines
}

// deleted returns the line that says that the object of the page was deleted; none while it exists.
func (s canvas) deleted(gone bool) []string {
	if !gone {
		return nil
	}
	return []string{s.t.Paint(theme.Bad, "  It has been deleted.")}
}

// absent returns why the page of one row has none: it is not read yet, or there is none.
func absent(w *World, state store.State, what, none string, width int) string {
	if !state.Synced {
		return empty(w, state, what, "", "", width)
	}
	return w.Theme.Paint(theme.Dim, "  "+widget.Harmless(none))
}

// events returns the events of a row, with their title.
func (s canvas) events(all []*store.Event) []string {
	return append([]string{s.title("Events")}, timeline(s.t, all, s.now, s.width)...)
}

// conditions returns the conditions of a row, with their title; warns picks those that say that something is the
// matter.
func (s canvas) conditions(all []store.Condition, warns func(store.Condition) bool) []string {
	lines := []string{s.title("Conditions")}
	for _, o := range all {
		role := theme.Text
		if warns(o) {
			role = theme.Warn
		}
		lines = append(lines, s.condition(role, o.Type, o.Status, o.Since, o.Reason, o.Message)...)
	}
	if len(all) == 0 {
		lines = append(lines, s.dim("none"))
	}
	return lines
}

// condition returns the lines of one condition, with its message beside it or below.
func (s canvas) condition(
	role theme.Role, kind string, status corev1.ConditionStatus, since time.Time, reason, message string,
) []string {
	line := "  " + s.t.Paint(role, widget.Pad(s.t, widget.Harmless(kind), 22)) + " " +
		widget.Pad(s.t, widget.Harmless(string(status)), 7) +
		s.t.Paint(theme.Dim, fmt.Sprintf("%6s", age(since, s.now)))
	text := widget.Harmless(strings.Trim(reason+": "+message, ": "))
	if room := s.width - conditionWidth; ansi.StringWidth(text) <= room {
		return []string{line + "  " + text}
	}
	lines := []string{line}
	wrapped := wrap(text, s.width-9)
	for _, l := range wrapped[:min(len(wrapped), conditionLines)] {
		lines = append(lines, "      "+s.t.Paint(theme.Dim, l))
	}
	return lines
}

// paragraph returns text wrapped to width, with its lines after the first indented.
func paragraph(t *theme.Theme, role theme.Role, text string, width int) []string {
	lines := widget.Wrap("  "+widget.Harmless(text), width-1, 2)
	for i := range lines {
		lines[i] = t.Paint(role, lines[i])
	}
	return lines
}

// wrap breaks text into lines so wide.
func wrap(text string, width int) []string {
	return strings.Split(ansi.Wrap(text, max(20, width), ""), "\n")
}

// bad reports whether a condition is not as one would have it.
func bad(kind string, status corev1.ConditionStatus) bool {
	switch kind {
	case string(v1.VirtualMachineInstanceReady), string(v1.VirtualMachineInstanceIsMigratable),
		string(v1.VirtualMachineInstanceSynchronized), string(v1.VirtualMachineInstanceIsStorageLiveMigratable):
		return status != corev1.ConditionTrue
	case string(v1.VirtualMachineFailure), string(v1.VirtualMachineRestartRequired),
		string(v1.VirtualMachineInstancePaused):
		return status == corev1.ConditionTrue
	}
	return false
}
