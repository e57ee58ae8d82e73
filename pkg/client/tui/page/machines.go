package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/util/duration"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

func humanDuration(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// Machines is the page of all virtual machines.
type Machines struct{ rows[*store.Machine] }

// NewMachines makes the page.
func NewMachines(w *World) *Machines { return newMachines(w, "VMs", w.Machines.Rows) }

// NewGuests returns the page of those that run on a node.
func NewGuests(w *World, node string) *Machines {
	p := newMachines(w, "VMs on "+node, func() []*store.Machine {
		return slices.DeleteFunc(w.Machines.Rows(), func(m *store.Machine) bool { return m.Node != node || !m.Alive() })
	})
	p.advice = "back to the nodes with esc"
	p.lacks = func() string {
		if w.Namespace == "" {
			return "No VM runs on node " + node
		}
		return "No VM of namespace " + w.Namespace + " runs on node " + node + "; 0 shows all namespaces"
	}
	return p
}

func newMachines(w *World, title string, read func() []*store.Machine) *Machines {
	p := &Machines{}
	var moves map[store.Key]*store.Migration
	p.rows = rows[*store.Machine]{
		world: w, title: title, what: "virtual machines", read: func() []*store.Machine {
			moves = w.moves()
			return read()
		}, advice: "the key + makes one", marks: true,
		state: func() store.State { return w.Machines.State() },
	}
	p.table = widget.Table[*store.Machine]{
		Columns: machineColumns(w, func(m *store.Machine) string { return conditions(m, moves[m.Key()]) }),
		Key:     (*store.Machine).Key,
		Labels:  func(m *store.Machine) map[string]string { return m.Labels },
		Now:     w.Now,
		Theme:   w.Theme,
	}
	p.bind(p.machineKeys()...)
	p.Refresh()
	return p
}

// sparkWidth is the width of a sparkline in a table.
const sparkWidth = 8

func machineColumns(w *World, flags func(*store.Machine) string) []widget.Column[*store.Machine] {
	type column = widget.Column[*store.Machine]
	text := func(s string) widget.Cell { return widget.Cell{Text: s} }
	word := func(title string, limit, priority int, of func(*store.Machine) string) column {
		return column{
			Title: title, Max: limit, Priority: priority,
			Cell:    func(m *store.Machine, _ time.Time) widget.Cell { return text(of(m)) },
			Compare: func(a, b *store.Machine) int { return strings.Compare(of(a), of(b)) },
		}
	}
	columns := []column{
		{Title: "NAME", Max: 63, First: true, Cell: func(m *store.Machine, _ time.Time) widget.Cell {
			if m.Instance {
				return text("vmi/" + m.Name)
			}
			return text(m.Name)
		}, Compare: func(a, b *store.Machine) int { return strings.Compare(a.Name, b.Name) }},
		{Title: "STATUS", Max: 24, Cell: func(m *store.Machine, _ time.Time) widget.Cell {
			return state(w.Theme, m.Status, statusRole(m))
		}, Compare: func(a, b *store.Machine) int { return strings.Compare(a.Status, b.Status) }},
		word("NODE", 24, 3, func(m *store.Machine) string { return m.Node }),
		word("IP", 39, 2, (*store.Machine).IP),
		{Title: "CPU", Right: true, Priority: 3, Volatile: true, Find: func(m *store.Machine) string {
			return w.asked(m, known(m.CPUs > 0, m.CPUs))
		}, Cell: func(m *store.Machine, _ time.Time) widget.Cell {
			s := w.Usage.Of(m.Key())
			if s == nil || !m.Alive() {
				return text(w.unmeasured(4, known(m.CPUs > 0, m.CPUs)))
			}
			full := float64(max(1, m.CPUs)) * 1000
			return text(widget.Sparkline(w.Theme, s.CPU, full, sparkWidth) +
				fmt.Sprintf(" %4s", s.says(fmt.Sprintf("%.0f%%", float64(s.Now.CPU)/full*100))))
		}, Compare: func(a, b *store.Machine) int { return cmp.Compare(cpu(w, b), cpu(w, a)) }},
		{
			Title: "MEMORY", Right: true, Priority: 4, Volatile: true, Find: func(m *store.Machine) string {
				return w.asked(m, known(!m.Memory.IsZero(), &m.Memory))
			},
			Cell: func(m *store.Machine, _ time.Time) widget.Cell {
				s := w.Usage.Of(m.Key())
				if s == nil || !m.Alive() {
					return text(w.unmeasured(6, known(!m.Memory.IsZero(), &m.Memory)))
				}
				return text(widget.Sparkline(w.Theme, s.Memory, float64(s.Now.Memory), sparkWidth) + " " +
					fmt.Sprintf("%6s", s.says(widget.Bytes(float64(used(s.Now))))))
			}, Compare: func(a, b *store.Machine) int { return b.Memory.Cmp(a.Memory) },
		},
		{
			Title: "AGE", Priority: 1, Right: true, Volatile: true,
			Cell: func(m *store.Machine, now time.Time) widget.Cell {
				return widget.Cell{Text: age(m.Created, now), Role: theme.Dim}
			}, Compare: func(a, b *store.Machine) int { return b.Created.Compare(a.Created) },
		},
		word("GUEST OS", 44, 6, func(m *store.Machine) string { return m.GuestOS }),
		{Title: "CONDITIONS", Priority: 5, Flex: true, Cell: func(m *store.Machine, _ time.Time) widget.Cell {
			return widget.Cell{Text: flags(m), Role: theme.Dim}
		}},
	}
	if w.Namespace == "" {
		columns = append([]column{word("NAMESPACE", 24, 1, func(m *store.Machine) string { return m.Namespace })},
			columns...)
	}
	return columns
}

// asked returns value, what a machine asks for; empty where what its guest uses is shown instead.
func (w *World) asked(m *store.Machine, value string) string {
	if w.Usage.Of(m.Key()) != nil && m.Alive() {
		return ""
	}
	return value
}

// unmeasured returns a value without a sparkline before it, but with room for one where other rows have them.
func (w *World) unmeasured(width int, value string) string {
	if !w.Usage.Any() {
		return value
	}
	return fmt.Sprintf("%*s", sparkWidth+1+width, value)
}

func cpu(w *World, m *store.Machine) int64 {
	if s := w.Usage.Of(m.Key()); s != nil {
		return s.Now.CPU
	}
	return -1
}

// state returns the name of a state, with a glyph before it that means the same as its colour does.
func state(t *theme.Theme, name string, role theme.Role) widget.Cell {
	return widget.Cell{Text: name, Role: role, Glyph: t.State(role)}
}

// statusRole returns the colour of a status.
func statusRole(m *store.Machine) theme.Role {
	switch store.HealthOf(m.Status, m.Ready) {
	case store.Well:
		return theme.Good
	case store.Off:
		return theme.Dim
	case store.Held:
		return theme.Warn
	case store.Bad:
		return theme.Bad
	}
	return theme.Busy
}

// conditions returns the conditions that differ from what one expects; move is the machine's migration that has not
// ended, nil without one.
func conditions(m *store.Machine, move *store.Migration) string {
	var out []string
	add := func(is bool, word string) {
		if is {
			out = append(out, word)
		}
	}
	add(m.Deleting, "deleting")
	switch {
	case m.Migrating || move != nil && move.Phase == v1.MigrationRunning:
		add(true, "migrating")
	case move != nil:
		add(true, "migration "+strings.ToLower(string(move.Phase)))
	}
	add(m.Evacuating, "evacuating")
	add(m.Alive() && m.RestartRequired, "restart required")
	add(m.Agent, "agent")
	add(m.Saving != "", m.Saving)
	add(m.Alive() && !m.Migratable, "not migratable")
	add(m.Trouble != "", m.Trouble)
	return strings.Join(out, ", ")
}

func (p *Machines) machineKeys() keymap.Map[*rows[*store.Machine]] {
	type bound = *rows[*store.Machine]
	w := p.world
	keys := keymap.Map[bound]{
		{
			Keys: []string{"enter"}, Name: "details", Help: "everything about the machine", Allowed: bound.none,
			Do: p.open(func(m *store.Machine) Page { return NewMachine(w, m.Key()) }),
		},
		{Keys: []string{"+"}, Name: "new", Help: "create a machine", Allowed: func(bound) string {
			if w.ReadOnly {
				return ReadOnly
			}
			if w.Namespace == "" { // the form has the namespace that is chosen there
				return ""
			}
			return w.Actions.ForbiddenTo(w.Namespace, "create", "virtualmachines")
		}, Do: func(bound) tea.Cmd { return Send(Open{NewForm(w)}) }},
	}
	return append(keys, keymap.Of(machineBindings(), func(p bound) subject {
		_, hidden := p.table.Marks()
		return subject{w, p.table.Marked(), hidden}
	})...)
}

// target names a machine for an action.
func target(m *store.Machine) lifecycle.Target {
	return lifecycle.Target{
		Namespace: m.Namespace, Name: m.Name, Instance: m.Instance, UID: m.ObjectUID, WithDisks: m.OnlyWithDisks,
	}
}

// again returns the row that a machine has now, or m and whether it is gone: one that was made anew under its name is
// another machine. The VM of an instance may have been listed later.
func (w *World) again(m *store.Machine) (row *store.Machine, gone bool) {
	row = w.Machines.Get(m.Key())
	if row == nil || row.ObjectUID != m.ObjectUID && (!m.Instance || row.UID != m.UID) {
		return m, w.Machines.State().Synced
	}
	return row, false
}

// known returns a value's text, empty for a value that is not known.
func known(is bool, value any) string {
	if !is {
		return ""
	}
	return fmt.Sprint(value)
}
