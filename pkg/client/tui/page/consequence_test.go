package page

import (
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestConsequence has the question of a delete say what ends with the machines, and others nothing.
func TestConsequence(t *testing.T) {
	t.Parallel()
	off := &store.Machine{Name: "off"}
	on := &store.Machine{Name: "on", Phase: "Running"}
	starting := &store.Machine{Name: "starting", Phase: "Scheduled"}
	instance := &store.Machine{Name: "vmi", Phase: "Running", Instance: true}
	pooled := &store.Machine{Name: "pool-0", Owner: "uid"}
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
	} {
		if got := consequence(c.verb, c.machines); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}
