package page

import (
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// consequence returns what the question of a verb says beyond the machines' names: of a delete which guests end with
// them, and that claims can; of a migration which take their disks along.
func consequence(verb lifecycle.Verb, machines []*store.Machine) string {
	switch verb {
	case lifecycle.Migrate:
		return diskCopies(machines)
	case lifecycle.Delete:
		return deletes(machines)
	}
	return ""
}

// migratesAgain returns what the question of a cancel says of the first machine whose guest virt-controller migrates
// anew.
func migratesAgain(verb lifecycle.Verb, machines []*store.Machine, moves map[store.Key]*store.Migration) string {
	if verb != lifecycle.MigrateCancel {
		return ""
	}
	for _, m := range machines {
		why := m.Again
		if move := moves[m.Key()]; move != nil && move.Update {
			why = m.AgainUpdate
		}
		switch {
		case why == "":
		case len(machines) == 1:
			return " virt-controller will migrate it again: " + why + "."
		default:
			return " virt-controller will migrate " + m.Key().String() + " again: " + why + "."
		}
	}
	return ""
}

// diskCopies returns what the question of a migration says of disks that it brings.
func diskCopies(machines []*store.Machine) string {
	moved := 0
	for _, m := range machines {
		if m.OnlyWithDisks {
			moved++
		}
	}
	const copied = ", which are copied to new claims; the old claims are kept, unless an annotation says Delete."
	switch {
	case moved == 0:
		return ""
	case len(machines) == 1:
		return " It can move only with its disks" + copied
	case moved == 1:
		return " 1 of them can move only with its disks" + copied
	case moved == len(machines):
		return " They can move only with their disks" + copied
	}
	return fmt.Sprintf(" %d of them can move only with their disks", moved) + copied
}

// deletes returns what the question of a delete says.
func deletes(machines []*store.Machine) string {
	running, starting, owners := 0, 0, false
	for _, m := range machines {
		switch m.Phase {
		case v1.Pending, v1.Scheduling, v1.Scheduled:
			starting++
		default:
			if m.Alive() {
				running++
			}
		}
		owners = owners || !m.Instance
	}
	var text string
	switch {
	case starting == 1 && len(machines) == 1:
		text = " It is starting, and does not start any more."
	case running == 0:
	case len(machines) == 1:
		text = " Its guest is running, and ends."
	case running == 1:
		text = " 1 of them runs, and its guest ends."
	case running == len(machines):
		text = " Their guests are running, and end."
	default:
		text = fmt.Sprintf(" %d of them are running, and their guests end.", running)
	}
	if slices.ContainsFunc(machines, func(m *store.Machine) bool { return m.Owner != "" }) {
		text += " The pool or replica set may make new ones."
	}
	if owners {
		text += " Claims that it owns are deleted, too."
		if len(machines) > 1 {
			text = strings.Replace(text, "that it owns", "that they own", 1)
		}
	}
	return text
}
