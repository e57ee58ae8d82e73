package page

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Migrations is the page of moves between nodes.
type Migrations struct{ rows[*store.Migration] }

// NewMigrations makes the page.
func NewMigrations(w *World) *Migrations {
	p := &Migrations{}
	p.rows = rows[*store.Migration]{
		world: w, title: "Migrations", what: "migrations", read: w.Migrations.Rows,
		advice: "on the page of VMs, the key m moves a running machine to another node",
		state:  func() store.State { return w.Migrations.State() },
	}
	type column = widget.Column[*store.Migration]
	text := func(of func(*store.Migration) string) func(*store.Migration, time.Time) widget.Cell {
		return func(m *store.Migration, _ time.Time) widget.Cell { return widget.Cell{Text: of(m)} }
	}
	p.table = widget.Table[*store.Migration]{
		Columns: []column{
			{Title: "AGE", Right: true, Volatile: true, Cell: func(m *store.Migration, now time.Time) widget.Cell {
				return widget.Cell{Text: age(m.Created, now), Role: theme.Dim}
			}, Compare: func(a, b *store.Migration) int { return b.Created.Compare(a.Created) }},
			{
				Title: "NAMESPACE", Max: 20, Priority: 3,
				Cell: text(func(m *store.Migration) string { return m.Namespace }),
			},
			{Title: "VM", Max: 63, First: true, Cell: text(func(m *store.Migration) string { return m.Machine })},
			{Title: "PHASE", Cell: func(m *store.Migration, _ time.Time) widget.Cell {
				return state(w.Theme, string(m.Phase), migrationRole(m))
			}},
			{Title: "PROGRESS", Volatile: true, Priority: 1, Cell: func(m *store.Migration, _ time.Time) widget.Cell {
				done := share(m)
				if done < 0 {
					return widget.Cell{}
				}
				return widget.Cell{
					Text: fmt.Sprintf("%s %3.0f%%", widget.Bar(w.Theme, done, 12), done*100), Role: migrationRole(m),
				}
			}, Compare: func(a, b *store.Migration) int { return cmp.Compare(share(a), share(b)) }},
			{Title: "RATE", Right: true, Volatile: true, Priority: 4, Cell: text(rate)},
			{Title: "LEFT", Right: true, Volatile: true, Priority: 3, Cell: text(remaining)},
			{Title: "FROM", Max: 24, Priority: 2, Cell: text(func(m *store.Migration) string { return m.From })},
			{Title: "TO", Max: 24, Priority: 2, Cell: text(func(m *store.Migration) string { return m.To })},
			{
				// From the migration's start to its end; DETAILS has how long of that the guest was copied.
				Title: "TOTAL", Right: true, Volatile: true, Priority: 4,
				Cell: func(m *store.Migration, now time.Time) widget.Cell {
					return widget.Cell{Text: total(m, now)}
				},
			},
			{Title: "DETAILS", Priority: 5, Flex: true, Cell: func(m *store.Migration, _ time.Time) widget.Cell {
				if m.Failure != "" {
					return widget.Cell{Text: m.Failure, Role: theme.Bad}
				}
				return widget.Cell{Text: movedHow(m), Role: theme.Dim}
			}},
		},
		Key: (*store.Migration).Key, Now: w.Now, Theme: w.Theme,
	}
	type bound = *rows[*store.Migration]
	p.bind(keymap.Map[bound]{
		{
			Keys: []string{"enter"}, Name: "machine", Help: "the machine that moves", Allowed: bound.none,
			Do: p.open(func(m *store.Migration) Page {
				return NewMachine(w, m.Of())
			}),
		},
		{
			Keys: []string{"M"}, Name: "migrate-cancel", Help: "cancel the migration; the guest stays where it is",
			Allowed: func(bound) string { return p.cancellable() }, Do: func(bound) tea.Cmd { return p.cancel() },
		},
		{
			Keys: []string{"y"}, Name: "YAML", Help: "the object as the server has it", Allowed: bound.none,
			Do: p.open(func(m *store.Migration) Page {
				return newYAML(w, "virtualmachineinstancemigrations", m.Key())
			}),
		},
	}...)
	p.Refresh()
	return p
}

func (p *Migrations) cancellable() string {
	m := p.current()
	switch {
	case m == nil:
		return p.none()
	case p.world.ReadOnly:
		return ReadOnly
	case !m.Active():
		return "it has ended"
	case m.Deleting:
		return "it is being cancelled"
	}
	s := p.moving(m)
	if len(s.machines) == 0 {
		return "its machine is not among those that are shown"
	}
	return s.allowed(lifecycle.MigrateCancel)
}

// moving returns the machine of a migration; a subject without one where it is not known.
func (p *Migrations) moving(m *store.Migration) subject {
	s := subject{world: p.world}
	if machine := p.world.Machines.Get(m.Of()); machine != nil {
		s.machines = append(s.machines, machine)
	}
	return s
}

func (p *Migrations) cancel() tea.Cmd { return p.moving(p.current()).ask(lifecycle.MigrateCancel) }

// moves returns the migrations that have not ended, by machine. One that is not being cancelled goes before one that
// is, and then the newest, as lifecycle.Migration has it: that is cancelled.
func (w *World) moves() map[store.Key]*store.Migration {
	out := map[store.Key]*store.Migration{}
	for _, m := range w.Migrations.Rows() {
		if before := out[m.Of()]; m.Active() && (before == nil || goesBefore(m, before)) {
			out[m.Of()] = m
		}
	}
	return out
}

func goesBefore(m, other *store.Migration) bool {
	if m.Deleting != other.Deleting {
		return other.Deleting
	}
	newer := m.Created.Compare(other.Created)
	return newer > 0 || newer == 0 && m.Name < other.Name
}

// movedHow says what a migration was like, and which claims it has left behind.
func movedHow(m *store.Migration) string {
	var out []string
	if m.Left != "" {
		out = append(out, "left behind: claim "+m.Left)
	}
	if m.Progress != nil {
		out = append(out, migrate.Summary(m.Progress))
	}
	return strings.Join(out, "; ")
}

// share returns how much of the guest has been copied, from 0 to 1; below 0 when that is not known: nothing is copied
// yet, or no longer.
func share(m *store.Migration) float64 {
	switch {
	case m.Phase == v1.MigrationSucceeded:
		return 1
	case m.Phase == v1.MigrationRunning && m.Progress != nil:
		return float64(m.Progress.Percent()) / 100
	}
	return -1
}

// rate returns how fast memory is copied.
func rate(m *store.Migration) string {
	if m.Progress == nil || !m.Active() || m.Progress.BandwidthBytesPerSecond == 0 {
		return ""
	}
	return widget.Bytes(float64(m.Progress.BandwidthBytesPerSecond)) + "/s"
}

func remaining(m *store.Migration) string {
	if m.Progress == nil || !m.Active() {
		return ""
	}
	if left, ends := m.Progress.Left(); ends {
		return left.Round(time.Second).String()
	}
	return "?"
}

// total returns how long the whole move has taken, of which copying is a part.
func total(m *store.Migration, now time.Time) string {
	switch {
	case m.Started.IsZero():
		return ""
	case m.Ended.IsZero():
		return now.Sub(m.Started).Round(time.Second).String()
	}
	took := m.Ended.Sub(m.Started) // of seconds without fractions
	if m.Progress != nil {
		took = max(took, time.Duration(m.Progress.ElapsedSeconds*float64(time.Second)))
	}
	return took.Round(100 * time.Millisecond).String()
}

func migrationRole(m *store.Migration) theme.Role {
	switch m.Phase {
	case v1.MigrationSucceeded:
		return theme.Good
	case v1.MigrationFailed:
		return theme.Bad
	}
	return theme.Busy
}
