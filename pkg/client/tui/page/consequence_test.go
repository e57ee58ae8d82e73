package page

import (
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestConsequence has the question of a delete say what ends with the machines, that of a migration which take their
// disks along, and others nothing.
func TestConsequence(t *testing.T) {
	t.Parallel()
	off := &store.Machine{Name: "off"}
	on := &store.Machine{Name: "on", Phase: "Running"}
	starting := &store.Machine{Name: "starting", Phase: "Scheduled"}
	instance := &store.Machine{Name: "vmi", Phase: "Running", Instance: true}
	pooled := &store.Machine{Name: "pool-0", Owner: "uid"}
	tied := &store.Machine{Name: "tied", Phase: "Running", OnlyWithDisks: true}
	const copied = ", which are copied to new claims; the old claims are kept, unless an annotation says Delete."
	for name, c := range map[string]struct {
		verb     lifecycle.Verb
		machines []*store.Machine
		want     string
	}{
		"stop":     {lifecycle.Stop, []*store.Machine{on}, ""},
		"off":      {lifecycle.Delete, []*store.Machine{off}, " Claims that it owns are deleted, too."},
		"instance": {lifecycle.Delete, []*store.Machine{instance}, " Its guest is running, and ends."},
		"starting": {
			lifecycle.Delete,
			[]*store.Machine{starting},
			" It is starting, and does not start any more. Claims that it owns are deleted, too.",
		},
		"one runs, one starts": {
			lifecycle.Delete,
			[]*store.Machine{starting, on},
			" 1 of them runs, and its guest ends. Claims that they own are deleted, too.",
		},
		"on": {
			lifecycle.Delete,
			[]*store.Machine{on},
			" Its guest is running, and ends. Claims that it owns are deleted, too.",
		},
		"all run": {
			lifecycle.Delete,
			[]*store.Machine{on, instance},
			" Their guests are running, and end. Claims that they own are deleted, too.",
		},
		"one of two runs": {
			lifecycle.Delete,
			[]*store.Machine{on, off},
			" 1 of them runs, and its guest ends. Claims that they own are deleted, too.",
		},
		"two of three run": {
			lifecycle.Delete,
			[]*store.Machine{on, off, instance},
			" 2 of them are running, and their guests end. Claims that they own are deleted, too.",
		},
		"of a pool": {
			lifecycle.Delete,
			[]*store.Machine{pooled},
			" The pool or replica set may make new ones. Claims that it owns are deleted, too.",
		},
		"migrate": {lifecycle.Migrate, []*store.Machine{on}, ""},
		"migrate with disks": {
			lifecycle.Migrate, []*store.Machine{tied}, " It can move only with its disks" + copied,
		},
		"migrate one of two with disks": {
			lifecycle.Migrate, []*store.Machine{tied, on}, " 1 of them can move only with its disks" + copied,
		},
		"migrate two of three with disks": {
			lifecycle.Migrate, []*store.Machine{tied, tied, on}, " 2 of them can move only with their disks" + copied,
		},
		"migrate all with disks": {
			lifecycle.Migrate, []*store.Machine{tied, tied}, " They can move only with their disks" + copied,
		},
		"pause one with disks": {lifecycle.Pause, []*store.Machine{tied}, ""},
	} {
		if got := consequence(c.verb, c.machines); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}
