package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Evacuation is the page of what an evacuation of a node would do to each guest, with a key that does it, and then of
// how far it is. The plan is read again when a guest of the node has changed; the rows say how far each guest is.
type Evacuation struct {
	*Text
	node string
	// plan is the one that was read last; it is made outside of Update.
	plan atomic.Pointer[evacuate.Report]
	// withDisks has guests that only their disks keep there move with them; it changes while no plan is being read.
	withDisks atomic.Bool
	// planned is what the rows said when the plan was asked for, at when that was.
	planned string
	asked   time.Time
	// begun is the plan that was carried out, and since when; nil before.
	begun *evacuate.Report
	since time.Time
}

// evacuated says that the evictions of an evacuation were asked for.
type evacuated struct {
	page *Evacuation
	plan *evacuate.Report
}

// A plan lists all pods of the cluster, so it is not read at each change of many, and without a change only while
// guests leave: those of other namespaces than the one that is shown have no rows.
const (
	evacuationLeast = 2 * time.Second
	evacuationMost  = 10 * time.Second
)

// NewEvacuation makes the page.
func NewEvacuation(w *World, node string) *Evacuation {
	p := &Evacuation{node: node}
	p.Text = NewText(w, "evacuation of "+node, func(ctx context.Context) ([]widget.Line, error) {
		r, err := w.Actions.EvacuationPlan(ctx, node, p.withDisks.Load())
		if err != nil {
			return nil, err
		}
		p.plan.Store(r)
		return nil, nil // draw makes the lines
	})
	for i := range p.keys {
		if slices.Contains(p.keys[i].Keys, "r") {
			p.keys[i].Do = func(*Text) tea.Cmd { return p.Start() }
		}
	}
	p.keys = append(keymap.Map[*Text]{{
		Keys: []string{"E"}, Name: "evacuate", Help: "keep new guests away, and have these leave",
		Allowed: func(*Text) string { return p.refusal() }, Do: func(*Text) tea.Cmd { return p.asks() },
	}, {
		Keys: []string{"W"}, Name: "with disks",
		Help:    "let guests that only their disks keep there move with them, or not",
		Called:  func(*Text) string { return p.otherwise() },
		Allowed: func(*Text) string { return p.keepsDisks() }, Do: func(*Text) tea.Cmd {
			p.withDisks.Store(!p.withDisks.Load())
			return p.Start()
		},
	}}, p.keys...)
	return p
}

// refusal returns why nothing can be evacuated now, empty when it can.
func (p *Evacuation) refusal() string {
	r := p.plan.Load()
	switch {
	case p.world.ReadOnly:
		return ReadOnly
	case p.at.IsZero() || p.err != nil || r == nil:
		return "the plan is not there yet"
	case p.planned != p.rows():
		return "the guests of the node have changed, and the plan is being read again"
	case p.reading:
		return "the plan is being read again"
	case len(r.Guests) == 0 && r.Cordoned:
		return "no guest runs there, and the node is cordoned already"
	}
	return ""
}

// otherwise returns the footer's name of the key that has disks go with their guests, or stay.
func (p *Evacuation) otherwise() string {
	if p.withDisks.Load() {
		return "without disks"
	}
	return "with disks"
}

// keepsDisks returns why that key does nothing now, empty when it does.
func (p *Evacuation) keepsDisks() string {
	switch {
	case p.begun != nil:
		return "the evacuation has begun"
	case p.reading:
		return "the plan is being read"
	}
	return ""
}

func (p *Evacuation) asks() tea.Cmd {
	report, w := p.plan.Load(), p.world
	line := []string{w.Program, "evacuate", p.node}
	if p.withDisks.Load() {
		line = append(line, "--with-disks")
	}
	return Send(Ask{Question: evacuationQuestion(report), Task: Task{
		Line: w.Line(append(line, "--yes")...),
		Do:   func(ctx context.Context) error { return w.Actions.Evacuate(ctx, report) },
		Then: func(error) tea.Msg { return evacuated{p, report} },
	}})
}

// rows returns what the rows say of the guests of the node, as far as a plan depends on it.
func (p *Evacuation) rows() string {
	var b strings.Builder
	if n := p.world.Nodes.Get(store.Key{Name: p.node}); n != nil {
		fmt.Fprintln(&b, n.Cordoned)
	}
	for _, m := range p.world.Machines.Rows() {
		if m.Node == p.node && m.Alive() {
			fmt.Fprintln(&b, m.Key(), m.UID, m.Migratable, m.OnlyWithDisks, m.Migrating, m.Evacuating)
		}
	}
	return b.String()
}

// Start reads the plan.
func (p *Evacuation) Start() tea.Cmd {
	if p.reading {
		return nil
	}
	p.planned, p.asked = p.rows(), p.world.Now()
	return p.Text.Start()
}

// Wants reads the plan again when it is not that of the rows any more, and while guests leave.
func (p *Evacuation) Wants() tea.Cmd {
	r, old := p.plan.Load(), p.world.Now().Sub(p.asked)
	leaving := p.begun != nil && r != nil && len(r.Guests) > 0
	switch {
	case p.err != nil && p.world.Now().Sub(p.at) < again, old < evacuationLeast:
	case p.err != nil, p.planned != p.rows(), leaving && old >= evacuationMost:
		return p.Start()
	}
	return nil
}

// Refresh draws how far the guests are.
func (p *Evacuation) Refresh() { p.draw() }

// Update takes the plan, and that it was carried out.
func (p *Evacuation) Update(msg tea.Msg) tea.Cmd {
	if m, ok := msg.(evacuated); ok {
		if m.page != p {
			return nil
		}
		p.begun, p.since = m.plan, p.world.Now()
		p.draw()
		return p.Start()
	}
	cmd := p.Text.Update(msg)
	p.draw()
	return cmd
}

func (p *Evacuation) draw() {
	if r := p.plan.Load(); r != nil {
		p.lines, p.wrapped = p.says(r), nil
	}
}

func evacuationQuestion(r *evacuate.Report) string {
	if len(r.Guests) == 0 {
		return "Cordon node " + r.Node +
			"? No guest runs there, and none comes until O on the page of nodes uncordons it."
	}
	down, stranded, copied := 0, 0, 0
	for i := range r.Guests {
		if o := r.Guests[i].Outcome; o == evacuate.Restarts || o == evacuate.Ends {
			down++
		}
		if r.Guests[i].Stranded() {
			stranded++
		}
		if r.Guests[i].WithDisks {
			copied++
		}
	}
	question := fmt.Sprintf("Evacuate node %s of its %s?", r.Node, guestCount(len(r.Guests)))
	if down > 0 {
		question += fmt.Sprintf(" %d will be shut down.", down)
	}
	if stranded > 0 {
		question += fmt.Sprintf(" %d of them cannot start on another node now.", stranded)
	}
	if copied > 0 {
		question += fmt.Sprintf(" The disks of %d are copied to new claims; the old claims are kept, unless an "+
			"annotation says Delete.", copied)
	}
	return question + " The node stays cordoned until O on the page of nodes uncordons it."
}

func guestCount(n int) string {
	if n == 1 {
		return "1 guest"
	}
	return fmt.Sprintf("%d guests", n)
}

// says what becomes of each guest, or what has become of it.
func (p *Evacuation) says(r *evacuate.Report) []widget.Line {
	if p.begun == nil || !r.Cordoned { // it has not begun, or failed to, or was ended by O
		return evacuationLines(r)
	}
	here := map[store.Key]*evacuate.Guest{}
	for i := range r.Guests {
		here[guestKey(&r.Guests[i])] = &r.Guests[i]
	}
	var guests []widget.Line
	gone := 0
	for i := range p.begun.Guests {
		g := &p.begun.Guests[i]
		now := here[guestKey(g)]
		delete(here, guestKey(g))
		lines, left := p.progress(g, now)
		guests = append(guests, lines...)
		if left {
			gone++
		}
	}
	for i := range r.Guests { // they came since
		if g := &r.Guests[i]; here[guestKey(g)] != nil {
			guests = append(guests, guestLines(g, string(g.Outcome), g.Target, guestRoles[g.Outcome])...)
		}
	}
	head := fmt.Sprintf("  %d of %s left in %s", gone, guestCount(len(p.begun.Guests)),
		humanDuration(p.world.Now().Sub(p.since)))
	if len(r.Guests) == 0 {
		head = "  No virtual machine runs on node " + r.Node + " any more"
	}
	return append([]widget.Line{
		{Text: head, Role: theme.Title},
		{Text: "  The node stays cordoned until O on the page of nodes uncordons it.", Role: theme.Dim},
	}, guests...)
}

// progress returns the lines that show how far a guest is that is to leave, and whether it has left. now is the guest
// in the present plan, nil when it does not run on the node any more.
func (p *Evacuation) progress(g, now *evacuate.Guest) (lines []widget.Line, left bool) {
	m := p.world.Machines.Get(guestKey(g))
	switch {
	case m != nil && m.Alive() && m.Node != "" && m.Node != p.node:
		return guestLines(g, "left", m.Node, theme.Good), true
	case m != nil && m.Alive() && m.Node == "":
		return guestLines(g, "starts", "", theme.Busy), true
	case m != nil && !m.Alive():
		return guestLines(g, "stopped", "", theme.Warn), true
	case now == nil && m == nil: // its rows are not shown
		return guestLines(g, "left", "", theme.Good), true
	case now == nil:
		now = g
	}
	if move := p.move(now); move != nil {
		state := "moving"
		if done := share(move); done >= 0 {
			state = fmt.Sprintf("moving %.0f%%", done*100)
		}
		return guestLines(now, state, cmp.Or(move.To, now.Target), theme.Busy), false
	}
	if m != nil && m.Evacuating && now.Outcome == evacuate.Moves {
		return guestLines(now, "asked", now.Target, theme.Busy), false
	}
	return guestLines(now, string(now.Outcome), now.Target, guestRoles[now.Outcome]), false
}

// move returns the migration of a guest that is under way; nil for none.
func (p *Evacuation) move(g *evacuate.Guest) *store.Migration {
	for _, m := range p.world.Migrations.Rows() {
		if m.Namespace == g.Namespace && m.Machine == g.Name && m.Active() {
			return m
		}
	}
	return nil
}

func guestKey(g *evacuate.Guest) store.Key { return store.Key{Namespace: g.Namespace, Name: g.Name} }

var guestRoles = map[evacuate.Outcome]theme.Role{
	evacuate.Stays: theme.Bad, evacuate.Restarts: theme.Warn, evacuate.Ends: theme.Warn,
}

func evacuationLines(r *evacuate.Report) []widget.Line {
	if len(r.Guests) == 0 {
		return []widget.Line{{Text: "  No virtual machine runs on node " + r.Node +
			". It can be cordoned all the same.", Role: theme.Dim}}
	}
	lines := []widget.Line{{Text: "  What becomes of each guest, as far as is known now", Role: theme.Title}}
	for i := range r.Guests {
		g := &r.Guests[i]
		lines = append(lines, guestLines(g, string(g.Outcome), g.Target, guestRoles[g.Outcome])...)
	}
	return lines
}

// guestLines returns a guest's lines: its state, where it is, and while it has not left, why.
func guestLines(g *evacuate.Guest, state, where string, role theme.Role) []widget.Line {
	lines := []widget.Line{{
		Text: fmt.Sprintf("  %-10s %-40s %s", state, guestKey(g), cmp.Or(where, "-")), Role: role,
	}}
	reason := g.Reason
	if reason == "" && g.WithDisks {
		reason = "with its disks"
	}
	if reason != "" && state == string(g.Outcome) {
		lines = append(lines, widget.Line{Text: "             " + reason, Role: theme.Dim, Hang: 13})
	}
	return lines
}
