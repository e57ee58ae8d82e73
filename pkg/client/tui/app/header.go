package app

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// place is a page that a digit goes to.
type place struct {
	key, name, help string
	make            func(*page.World) page.Page
}

// places returns the pages of the bar.
func places() []place {
	return []place{
		{"1", "VMs", "the page of VMs", func(w *page.World) page.Page { return page.NewMachines(w) }},
		{"2", "Nodes", "the page of nodes", func(w *page.World) page.Page { return page.NewNodes(w) }},
		{"3", "Migrations", "the page of migrations", func(w *page.World) page.Page { return page.NewMigrations(w) }},
		{"4", "Events", "the page of events", func(w *page.World) page.Page { return page.NewEvents(w) }},
		{"5", "Health", "the page of the stack's health", func(w *page.World) page.Page { return page.NewHealth(w) }},
		{"6", "Types", "the page of instance types and preferences", func(w *page.World) page.Page {
			return page.NewSizings(w)
		}},
		{"7", "Pools", "the page of pools and replica sets", func(w *page.World) page.Page {
			return page.NewSets(w, "")
		}},
		{"8", "Snaps", "the page of snapshots", func(w *page.World) page.Page { return page.NewSnapshots(w) }},
		{"9", "Images", "the page of cloud images", func(w *page.World) page.Page { return page.NewImages(w) }},
	}
}

// visit opens a place's page.
func (a *App) visit(p *place) tea.Cmd {
	cmd := a.home(p.make)
	a.place = p.key
	return cmd
}

// tallFrom is the least height of a screen with room for a header of three lines.
const tallFrom = 16

// header shows where we are, how the cluster is, and whether to believe what is shown: in three lines, or in one where
// there is no room or the keys are the page's.
func (a *App) header() []string {
	t := a.theme()
	if a.height < tallFrom || a.grabbed() {
		return []string{a.spread(" "+t.Paint(theme.Title, a.trail()), a.warnings()+a.scope())}
	}
	return []string{a.summary(), a.bar(), a.spread(" "+t.Paint(theme.Title, a.trail()), "")}
}

// spread puts one text at the left and another at the right, which gives way.
func (a *App) spread(left, right string) string {
	t := a.theme()
	const least = 20
	if right != "" {
		right += " "
	}
	room := a.width - ansi.StringWidth(right)
	if room < least {
		right = ansi.Truncate(right, max(0, a.width-least), t.Ellipsis)
		room = a.width - ansi.StringWidth(right)
	}
	return widget.Pad(t, left, room) + right
}

// trail names the pages, the one that is looked at last.
func (a *App) trail() string {
	var trail []string
	for _, p := range a.stack {
		trail = append(trail, widget.Harmless(p.Title()))
	}
	return strings.Join(trail, " > ")
}

// scope returns the cluster and the namespace that are shown.
func (a *App) scope() string {
	return a.theme().Paint(theme.Dim, widget.Harmless(a.World.Context)+" / "+a.namespace())
}

func (a *App) namespace() string {
	if a.World.Namespace == "" {
		return "all namespaces"
	}
	return a.World.Namespace
}

// warnings returns the notes that what is shown is old, and that nothing can be changed.
func (a *App) warnings() string {
	t := a.theme()
	var out string
	if a.World.ReadOnly {
		out = t.Paint(theme.Warn, "read-only") + "  "
	}
	if badge := a.badge(); badge != "" {
		out += t.Paint(theme.Bad, badge) + "  "
	}
	return out
}

// badge returns the note that what is shown is old, and how old.
func (a *App) badge() string {
	state := a.top().State()
	if !state.Stale() || !state.Synced {
		return ""
	}
	return "STALE for " + a.World.Now().Sub(state.Since).Round(time.Second).String()
}

// summary returns the line with the cluster and how it is: as much of it as there is room for.
func (a *App) summary() string {
	right := strings.TrimRight(a.warnings(), " ")
	room := a.width
	if right != "" {
		room -= ansi.StringWidth(right) + 2
	}
	left, whole := a.summaryOf(" / "+a.namespace(), "   ", room)
	if !whole { // that all namespaces are shown can be seen below
		scope := ""
		if a.World.Namespace != "" {
			scope = " / " + a.World.Namespace
		}
		left, _ = a.summaryOf(scope, "  ", room)
	}
	return a.spread(left, right)
}

// summaryOf returns the summary in at most room cells, and whether that is all of it.
func (a *App) summaryOf(scope, gap string, room int) (line string, whole bool) {
	t := a.theme()
	line = " " + t.Paint(theme.Accent, widget.Harmless(a.World.Context)) + t.Paint(theme.Dim, scope)
	for _, parts := range a.totals.Parts(t) {
		var b strings.Builder
		b.WriteString(gap)
		for _, p := range parts {
			b.WriteString(t.Paint(p.Role, p.Text))
		}
		if ansi.StringWidth(line)+ansi.StringWidth(b.String()) > room {
			return line, false
		}
		line += b.String()
	}
	return line, true
}

// bar shows the pages with their keys, the current one marked.
func (a *App) bar() string {
	t := a.theme()
	left := " "
	gap := strings.Repeat(" ", a.barGap()-1)
	for _, p := range places() {
		if p.key == a.place {
			left += t.Paint(theme.Selected, " "+p.key+" "+p.name+gap)
		} else {
			left += " " + t.Paint(theme.Key, p.key) + " " + p.name + gap
		}
	}
	return widget.Pad(t, left, a.width)
}

// barGap returns how many cells are between the names of the bar: fewer where there is little room.
func (a *App) barGap() int {
	const wide, narrow = 2, 1
	width := 1
	for _, p := range places() {
		width += ansi.StringWidth(p.key+p.name) + 1 + wide
	}
	if width > a.width {
		return narrow
	}
	return wide
}

// clickedBar goes to the page that the bar has at a column.
func (a *App) clickedBar(x int) tea.Cmd {
	left := 1
	for _, p := range places() {
		width := ansi.StringWidth(p.key+p.name) + 1 + a.barGap()
		if x >= left && x < left+width {
			return a.visit(&p)
		}
		left += width
	}
	return nil
}
