package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Snapshots is the page of snapshots, with the restores and clones that were made of each below it.
type Snapshots struct {
	rows[*store.Snapshot]
	machine *store.Key // the VM whose snapshots these are; nil has those of all
	above   int        // how many lines are drawn above the table
}

// NewSnapshots makes the page. What it shows is followed from then on.
func NewSnapshots(w *World) *Snapshots { return newSnapshots(w, "Snapshots", nil) }

// NewSnapshotsOf returns the page of one VM's.
func NewSnapshotsOf(w *World, machine store.Key) *Snapshots {
	p := newSnapshots(w, "Snapshots of "+machine.String(), &machine)
	p.lacks = func() string { return "VM " + machine.String() + " has no snapshot" }
	return p
}

func newSnapshots(w *World, title string, machine *store.Key) *Snapshots {
	followSnapshots(w)
	p := &Snapshots{machine: machine}
	p.rows = rows[*store.Snapshot]{
		world: w, title: title, what: "snapshots", advice: "on the page of VMs, the key t takes one",
		state: func() store.State { return w.Snapshots.Snapshots.State() }, read: p.some, marks: true,
	}
	if machine != nil {
		p.advice = "the key t takes one"
	}
	p.table = widget.Table[*store.Snapshot]{
		Columns: p.columns(), Key: (*store.Snapshot).Key, Now: w.Now, Theme: w.Theme,
		Labels: func(s *store.Snapshot) map[string]string { return s.Labels },
		Parent: func(s *store.Snapshot) (store.Key, bool) { return s.Source(), s.Of != "" },
	}
	type bound = *rows[*store.Snapshot]
	keys := keymap.Map[bound]{{
		Keys: []string{"enter"}, Name: "details", Help: "everything about the snapshot, restore or clone",
		Allowed: bound.none, Do: p.open(func(s *store.Snapshot) Page { return NewSnapshot(w, s.Key()) }),
	}}
	keys = append(keys, keymap.Of(savedBindings(), func(bound) saved { return p.saved() })...)
	if machine == nil {
		keys = append(keys, keymap.Binding[bound]{
			Keys: []string{"T"}, Name: "snapshots", Help: "the snapshots of the VM, and what was made of them",
			Quiet: true, Allowed: func(b bound) string {
				if why := b.none(); why != "" {
					return why
				}
				if machineOf(b.current()) == "" {
					return "it is the copy of an image, and of no VM"
				}
				return ""
			}, Do: p.open(func(s *store.Snapshot) Page {
				return NewSnapshotsOf(w, store.Key{Namespace: s.Namespace, Name: machineOf(s)})
			}),
		})
	}
	p.bind(keys...)
	p.Refresh()
	return p
}

func followSnapshots(w *World) {
	if w.FollowSnapshots != nil {
		w.FollowSnapshots()
	}
}

// saved returns what the keys work on.
func (p *Snapshots) saved() saved {
	_, hidden := p.table.Marks()
	return saved{p.world, p.table.Marked(), p.machine, hidden}
}

// some returns the rows of the page. Those of a VM are its snapshots, the restores and clones of them, and those that
// make the VM.
func (p *Snapshots) some() []*store.Snapshot {
	all := p.world.Snapshots.Rows()
	if p.machine == nil {
		return all
	}
	of := map[store.Key]bool{}
	for _, s := range all {
		if s.Resource == store.Snapshots && s.Namespace == p.machine.Namespace && s.Machine == p.machine.Name {
			of[s.Key()] = true
		}
	}
	return slices.DeleteFunc(all, func(s *store.Snapshot) bool {
		if s.Namespace != p.machine.Namespace {
			return true
		}
		return !of[s.Key()] && !of[s.Source()] &&
			(s.Resource == store.Snapshots || s.Machine != p.machine.Name && s.Target != p.machine.Name)
	})
}

// below reports whether a row is drawn below its snapshot's.
func (p *Snapshots) below(s *store.Snapshot) bool {
	return s.Of != "" && p.world.Snapshots.Get(s.Source()) != nil
}

// grouped orders by VM, and the newest first.
func grouped(a, b *store.Snapshot) int {
	return cmp.Or(strings.Compare(machineOf(a), machineOf(b)), b.Created.Compare(a.Created))
}

// machineOf returns the VM of a row: the one that a snapshot is of, else the one that is made; "" when it is a claim.
func machineOf(s *store.Snapshot) string {
	switch {
	case s.Resource == store.Snapshots:
		return s.Machine
	case s.OfImage:
		return ""
	}
	return s.Target
}

func (p *Snapshots) columns() []widget.Column[*store.Snapshot] {
	w := p.world
	type column = widget.Column[*store.Snapshot]
	word := func(title string, limit, priority int, of func(*store.Snapshot) string) column {
		return column{
			Title: title, Max: limit, Priority: priority,
			Cell: func(s *store.Snapshot, _ time.Time) widget.Cell { return widget.Cell{Text: of(s)} },
		}
	}
	machine := word("VM", 40, 0, machineOf)
	machine.Compare = grouped
	name := word("NAME", 63, 0, func(s *store.Snapshot) string {
		switch {
		case s.Resource == store.Snapshots:
			return s.Name
		case p.below(s):
			return "└ " + s.Short() + "/" + s.Name
		}
		return s.Short() + "/" + s.Name
	})
	name.First = true
	name.Compare = func(a, b *store.Snapshot) int { return strings.Compare(a.Name, b.Name) }
	columns := []column{
		machine, name,
		{Title: "STATE", Max: 20, Cell: func(s *store.Snapshot, _ time.Time) widget.Cell {
			return state(w.Theme, s.Phase, savedRole(s))
		}},
		{Title: "VOLUMES", Priority: 3, Right: true, Cell: func(s *store.Snapshot, _ time.Time) widget.Cell {
			text, role := savedVolumes(w, s)
			return widget.Cell{Text: text, Role: role}
		}},
		{
			Title: "SIZE", Priority: 2, Right: true,
			Cell: func(s *store.Snapshot, _ time.Time) widget.Cell { return widget.Cell{Text: sizeText(w, s)} },
			Compare: func(a, b *store.Snapshot) int {
				x, y := savedSize(w, a), savedSize(w, b)
				return y.Cmp(x)
			},
		},
		{
			Title: "AGE", Priority: 1, Right: true, Volatile: true,
			Cell: func(s *store.Snapshot, now time.Time) widget.Cell {
				return widget.Cell{Text: age(s.Created, now), Role: theme.Dim}
			}, Compare: func(a, b *store.Snapshot) int { return b.Created.Compare(a.Created) },
		},
		word("TAKEN", 40, 4, how),
		word("MADE BY", 40, 6, func(s *store.Snapshot) string { return s.Maker }),
		{Title: "DETAILS", Priority: 5, Flex: true, Cell: func(s *store.Snapshot, now time.Time) widget.Cell {
			text, role := progressOf(s, now)
			return widget.Cell{Text: text, Role: role}
		}},
	}
	if w.Namespace == "" && p.machine == nil {
		namespace := word("NAMESPACE", 24, 2, func(s *store.Snapshot) string { return s.Namespace })
		namespace.Compare = func(a, b *store.Snapshot) int {
			return cmp.Or(strings.Compare(a.Namespace, b.Namespace), grouped(a, b))
		}
		columns = append([]column{namespace}, columns...)
	}
	return columns
}

func savedRole(s *store.Snapshot) theme.Role {
	switch {
	case s.Health == store.Bad:
		return theme.Bad
	case s.Deleting:
		return theme.Warn
	case s.Health == store.Well:
		return theme.Good
	}
	return theme.Busy
}

// savedVolumes returns how many of the VM's volumes a snapshot has, or while it is taken how many are ready.
func savedVolumes(w *World, s *store.Snapshot) (string, theme.Role) {
	if s.Resource != store.Snapshots {
		return known(len(s.Claims) > 0, len(s.Claims)), theme.Text
	}
	if volumes := w.Snapshots.VolumesOf(s); !s.Ended && len(volumes) > 0 {
		ready := 0
		for _, v := range volumes {
			if v.Ready || v.VolumeSnapshot == "" {
				ready++
			}
		}
		return fmt.Sprintf("%d/%d", ready, len(volumes)), theme.Busy
	}
	all := len(s.Included) + len(s.Excluded)
	role := theme.Text
	if len(s.Excluded) > 0 {
		role = theme.Warn
	}
	return known(all > 0, fmt.Sprintf("%d/%d", len(s.Included), all)), role
}

// savedSize returns how much a restore of a snapshot takes at least; zero where that is not known.
func savedSize(w *World, s *store.Snapshot) resource.Quantity {
	sum := resource.Quantity{Format: resource.BinarySI}
	if s.Resource == store.Snapshots {
		for _, v := range w.Snapshots.VolumesOf(s) {
			sum.Add(v.Size)
		}
	}
	return sum
}

func sizeText(w *World, s *store.Snapshot) string {
	size := savedSize(w, s)
	return known(!size.IsZero(), &size)
}

// how returns how a snapshot was taken, in words of the API; "offline" for a VM that did not run.
func how(s *store.Snapshot) string {
	var words []string
	for _, i := range s.Indications {
		words = append(words, i[0])
	}
	if len(words) == 0 && s.Resource == store.Snapshots && s.Ready {
		return "offline"
	}
	return strings.Join(words, ", ")
}

// progressOf returns what went wrong, or how far what is under way is.
func progressOf(s *store.Snapshot, now time.Time) (string, theme.Role) {
	switch {
	case s.Trouble != "":
		return s.Trouble, theme.Bad
	case !s.Ended:
		return strings.Join(filled(s.Stage, left(s, now)), "; "), theme.Busy
	case len(s.Excluded) > 0:
		return "without " + strings.Join(s.Excluded, ", "), theme.Warn
	}
	return s.Stage, theme.Dim
}

// left returns when a snapshot that is under way fails; empty for anything else.
func left(s *store.Snapshot, now time.Time) string {
	if s.Ended || s.Deadline <= 0 || s.Created.IsZero() || !s.Taken.IsZero() {
		return ""
	}
	if left := s.Created.Add(s.Deadline).Sub(now); left > 0 {
		return "fails in " + humanDuration(left) + " at the latest"
	}
	return ""
}

// filled returns those of the texts that are not empty.
func filled(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// View draws the table, and above it what of it cannot be read; without any rows, what is missing for them.
func (p *Snapshots) View(width, height int) string {
	said := func(role theme.Role, text string) []string { return paragraph(p.world.Theme, role, text, width) }
	if err := p.state().Err; client.Unserved(err) {
		return strings.Join(said(theme.Bad, Capital(snapshot.ErrNoKinds.Error())), "\n")
	}
	var lines []string
	for _, part := range []struct {
		what  string
		state store.State
	}{
		{"Restores", p.world.Snapshots.Restores.State()},
		{"Clones", p.world.Snapshots.Clones.State()},
		{"Volumes and sizes", p.world.Snapshots.Contents.State()},
	} {
		if p.state().Synced && part.state.Err != nil && !part.state.Synced {
			lines = append(lines, said(theme.Warn, part.what+" are not shown: "+p.world.Say(part.state.Err))...)
		}
	}
	if noSnapshotKinds(p.world) {
		lines = append(lines, said(theme.Warn, noCSI)...)
	}
	if p.above = len(lines); p.above > 0 && height-p.above > claimsLeast {
		return strings.Join(lines, "\n") + "\n" + p.rows.View(width, height-p.above)
	}
	p.above = 0
	return p.rows.View(width, height)
}

// Click passes a click on to the table, which may begin below other lines.
func (p *Snapshots) Click(x, y int, twice bool) tea.Cmd { return p.rows.Click(x, y-p.above, twice) }

// noCSI says what a cluster without the VolumeSnapshots of CSI lacks.
const noCSI = "Volumes cannot be snapshotted: the cluster does not have CSI's VolumeSnapshots. Install their kinds, " +
	"the snapshot controller, and a driver that has snapshots; see docs/snapshots.md."

// noSnapshotKinds reports whether the cluster has no VolumeSnapshots.
func noSnapshotKinds(w *World) bool {
	state := w.Snapshots.Volumes.State()
	return !state.Synced && client.Unserved(state.Err)
}
