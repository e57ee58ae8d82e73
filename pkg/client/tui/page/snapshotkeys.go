package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// saved are the snapshots, restores and clones that keys work on.
type saved struct {
	world *World
	rows  []*store.Snapshot
	// machine is the VM whose snapshots are shown; nil where it is that of the row.
	machine *store.Key
	// hidden is how many more rows are marked, which a filter hides.
	hidden int
}

// one returns the row, or why there is not exactly one.
func (s saved) one() (*store.Snapshot, string) {
	switch len(s.rows) {
	case 0:
		return nil, "there is nothing here"
	case 1:
		return s.rows[0], ""
	}
	return nil, "this is for one at a time"
}

// ready returns why the row cannot be restored, cloned or exported by creating the resource, empty when it can.
func (s saved) ready(resource string) string {
	row, why := s.one()
	switch {
	case s.world.ReadOnly:
		return ReadOnly
	case why != "":
		return why
	case row.Resource != store.Snapshots:
		return "this is for snapshots; it is a " + row.Short()
	case row.Deleting:
		return "it is being deleted"
	case !row.Ready:
		return "it is not ready to be restored; w says why"
	}
	return s.world.Actions.ForbiddenTo(row.Namespace, "create", resource)
}

// latest returns a row as it is now, or as it was last.
func latest(w *World, s *store.Snapshot) *store.Snapshot {
	if row := w.Snapshots.Get(s.Key()); row != nil {
		return row
	}
	return s
}

// source returns the VM that another snapshot is taken of.
func (s saved) source() *store.Machine {
	if s.machine != nil {
		return s.world.Machines.Get(*s.machine)
	}
	if row, _ := s.one(); row != nil {
		return s.world.Machines.Get(store.Key{Namespace: row.Namespace, Name: machineOf(row)})
	}
	return nil
}

// savedBindings returns the keys that do something to snapshots, and to what was made of them, wherever they are shown.
func savedBindings() keymap.Map[saved] {
	some := func(s saved) string {
		_, why := s.one()
		return why
	}
	return keymap.Map[saved]{
		{
			Keys: []string{"t"}, Name: takeName, Help: takeHelp,
			Allowed: func(s saved) string {
				if s.machine == nil && len(s.rows) != 1 {
					return some(s)
				}
				m := s.source()
				if m == nil {
					return "its VM is not there"
				}
				return takeRefusal(s.world, m)
			},
			Do: func(s saved) tea.Cmd { return Send(Open{NewTake(s.world, s.source())}) },
		},
		{
			Keys: []string{"b"}, Name: "restore", Help: "bring the VM back as the snapshot has it, or another VM",
			Allowed: func(s saved) string { return s.ready(store.Restores) },
			Do:      func(s saved) tea.Cmd { return Send(Open{NewRestore(s.world, s.rows[0])}) },
		},
		{
			Keys: []string{"D"}, Name: "clone", Help: "make another VM of the snapshot, with an identity of its own",
			Allowed: func(s saved) string { return s.ready(store.Clones) },
			Do:      func(s saved) tea.Cmd { return Send(Open{NewClone(s.world, s.rows[0])}) },
		},
		{
			Keys: []string{exportKey}, Name: exportName, Help: exportHelp,
			Allowed: func(s saved) string { return s.ready(Exports) },
			Do:      func(s saved) tea.Cmd { return Send(Open{newSavedExport(s.world, s.rows[0])}) },
		},
		{
			Keys: []string{"w"}, Name: "why", Help: "what it waits for, or why it failed", Allowed: some,
			Do: func(s saved) tea.Cmd { return Send(Open{newSavedWhy(s.world, s.rows[0])}) },
		},
		{
			Keys: []string{"i"}, Name: "machines", Help: "the VM", Allowed: func(s saved) string {
				if why := some(s); why != "" {
					return why
				}
				if s.world.Machines.Get(store.Key{Namespace: s.rows[0].Namespace, Name: machineOf(s.rows[0])}) == nil {
					return "its VM is not there"
				}
				return ""
			}, Do: func(s saved) tea.Cmd {
				key := store.Key{Namespace: s.rows[0].Namespace, Name: machineOf(s.rows[0])}
				return Send(Open{NewMachine(s.world, key)})
			},
		},
		{
			Keys: []string{"y"}, Name: "YAML", Help: "the object as the server has it", Allowed: some,
			Do: func(s saved) tea.Cmd {
				return Send(Open{newYAML(s.world, s.rows[0].Resource, s.rows[0].Object())})
			},
		},
		{
			Keys: []string{"ctrl+d"}, Name: "delete", Help: "delete it; the question says what goes with it",
			Allowed: saved.undeletable, Do: saved.askDelete,
		},
	}
}

// undeletable returns why none of the rows can be deleted.
func (s saved) undeletable() string {
	if s.world.ReadOnly {
		return ReadOnly
	}
	why := "there is nothing here"
	for _, row := range s.rows {
		if why = s.keeps(row); why == "" {
			return ""
		}
	}
	return why
}

// keeps returns why a row cannot be deleted.
func (s saved) keeps(row *store.Snapshot) string {
	if row.Deleting {
		return "it is being deleted"
	}
	return s.world.Actions.ForbiddenTo(row.Namespace, "delete", row.Resource)
}

// askDelete asks before the rows are deleted, and says what goes with them.
func (s saved) askDelete() tea.Cmd {
	var chosen []*store.Snapshot
	var whys []string
	for _, row := range s.rows {
		if why := s.keeps(row); why != "" {
			whys = append(whys, why)
			continue
		}
		chosen = append(chosen, row)
	}
	if len(chosen) == 0 {
		return nil
	}
	ask := Ask{Task: s.deletion(chosen)}
	if len(chosen) == 1 {
		row := chosen[0]
		ask.Typed = row.Name
		ask.Question = "Delete " + savedName(row) + "? " + Capital(s.consequence(row)) + "." + leftOut("row", whys) +
			unseen("row", s.hidden)
		return Send(ask)
	}
	var names []string
	for _, row := range chosen[:min(len(chosen), namedMost)] {
		names = append(names, savedName(row))
	}
	kept := 0
	for _, row := range chosen {
		if row.Kept {
			kept++
		}
	}
	ask.Typed = fmt.Sprint(len(chosen))
	ask.Question = fmt.Sprintf("Delete %d: %s", len(chosen), strings.Join(names, ", "))
	if more := len(chosen) - namedMost; more > 0 {
		ask.Question += fmt.Sprintf(" and %d more", more)
	}
	ask.Question += "?"
	if slices.ContainsFunc(chosen, func(row *store.Snapshot) bool { return row.Resource == store.Snapshots }) {
		ask.Question += " What snapshots have of volumes goes with them unless it is to stay."
	}
	if kept > 0 {
		ask.Question += fmt.Sprintf(" Restores among them that cannot be undone any more: %d.", kept)
	}
	ask.Question += leftOut("row", whys) + unseen("row", s.hidden)
	return Send(ask)
}

// savedName names a row and its VM.
func savedName(s *store.Snapshot) string {
	name := s.Short() + " " + s.Object().String()
	if of := machineOf(s); of != "" {
		name += " of VM " + of
	}
	return name
}

// consequence returns what a row's deletion does to the data that belongs to it.
func (s saved) consequence(row *store.Snapshot) string {
	switch {
	case row.Kept:
		return "the VM and its volumes stay, but the restore cannot be undone any more, and the volumes that it " +
			"replaced stay for nobody, unless the VM has them again"
	case row.OfImage && row.Ended:
		return "only this record goes, the claim stays"
	case row.OfImage:
		return "it is under way, and no claim comes of it unless that is there already"
	case row.Resource == store.Restores && row.Ended, row.Resource == store.Clones && row.Ended:
		return "only this record goes, the VM and its volumes stay"
	case row.Resource == store.Restores:
		return "it is under way: until the VM was written it stays as it is, after that the restore is finished first"
	case row.Resource == store.Clones:
		return "it is under way, and no VM comes of it unless that is there already"
	case row.Retain:
		return "its content stays, as its deletion policy is Retain"
	}
	var volumes []string
	for _, v := range s.world.Snapshots.VolumesOf(row) {
		if v.VolumeSnapshot != "" {
			volumes = append(volumes, v.Name)
		}
	}
	said := "what it has of the VM goes with it"
	if len(volumes) > 0 {
		said = "the VolumeSnapshots of its volumes " + strings.Join(volumes, ", ") + " go with it"
	}
	for _, other := range s.world.Snapshots.Rows() {
		if other.Source() == row.Key() && !other.Ended {
			said += fmt.Sprintf(", and %s %s is under way", other.Short(), other.Name)
		}
	}
	return said + s.resumes(row)
}

// resumes names the VMs that go on from the memory which a snapshot has, as `virtctl snapshot delete` does.
func (s saved) resumes(row *store.Snapshot) string {
	content := s.world.Snapshots.Contents.Get(store.Key{Namespace: row.Namespace, Name: row.Content})
	if content == nil || s.world.Machines == nil {
		return ""
	}
	said := ""
	for _, m := range s.world.Machines.Rows() {
		if m.Namespace == row.Namespace && m.Resumes != "" && m.Resumes == content.Memory {
			said += fmt.Sprintf(", and VM %s, which goes on from its memory at its next start, does not start before "+
				"it is told to boot", m.Name)
		}
	}
	return said
}

// deletion deletes the rows, one after the other; what fails does not keep the others from it.
func (s saved) deletion(chosen []*store.Snapshot) Task {
	actions := s.world.Actions
	var lines []string
	for _, row := range chosen {
		words := []string{"kubectl delete", strings.TrimSuffix(row.Resource, "s"), quoted(row.Name)}
		if row.Resource == store.Snapshots {
			words = []string{s.world.Program, "snapshot delete", quoted(row.Name), "--yes"}
		}
		lines = append(lines, s.world.Line(append(words, "--namespace", row.Namespace)...))
	}
	return Task{Line: strings.Join(lines, " && "), Do: func(ctx context.Context) error {
		var failed []error
		for _, row := range chosen {
			failed = append(failed, actions.DeleteSnapshot(ctx, row))
		}
		return errors.Join(failed...)
	}}
}

func newSavedWhy(w *World, s *store.Snapshot) *Text {
	return NewText(w, "why "+s.Short()+"/"+s.Name, func(ctx context.Context) ([]widget.Line, error) {
		report, err := w.Actions.WhySnapshot(ctx, s)
		if err != nil {
			return nil, err
		}
		return whyLines(report, w.Program), nil
	})
}
