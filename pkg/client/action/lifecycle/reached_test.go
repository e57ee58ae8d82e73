package lifecycle

import "testing"

func TestReached(t *testing.T) {
	vm := Target{Namespace: "prod", Name: "web"}
	for _, c := range []struct {
		verb   Verb
		target Target
		paused bool
		node   string
		want   string
	}{
		{Start, vm, false, "node1", "VM web runs on node1"},
		{Start, vm, true, "node1", "VM web is paused before its first instruction on node1"},
		{Restart, vm, false, "", "VM web runs"},
		{Stop, vm, false, "", "VM web is stopped"},
		{Pause, vm, false, "node1", "VMI web is paused on node1"},
		{Unpause, Target{Namespace: "prod", Name: "web", Instance: true}, false, "node1", "VMI web runs on node1"},
		{Migrate, vm, false, "node2", "VM web has moved and runs on node2"},
		{MigrateCancel, vm, false, "node1", "VM web does not migrate any more"},
		{Delete, vm, false, "", ""},
	} {
		if got := Reached(c.verb, c.target, c.paused, c.node); got != c.want {
			t.Errorf("%s: %q, not %q", c.verb, got, c.want)
		}
	}
}
