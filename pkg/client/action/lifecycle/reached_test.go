package lifecycle

import "testing"

func TestReached(t *testing.T) {
	vm := Target{Namespace: "prod", Name: "web"}
	for _, c := range []struct {
		verb   Verb
		target Target
		guest  Guest
		want   string
	}{
		{Start, vm, Guest{Node: "node1"}, "VM web runs on node1"},
		{
			Start, vm,
			Guest{Node: "node1", Paused: true, Fresh: true},
			"VM web is paused before its first instruction on node1",
		},
		{Restart, vm, Guest{}, "VM web runs"},
		{Stop, vm, Guest{}, "VM web is stopped"},
		{Pause, vm, Guest{Node: "node1"}, "VMI web is paused on node1"},
		{
			Unpause,
			Target{Namespace: "prod", Name: "web", Instance: true},
			Guest{Node: "node1"},
			"VMI web runs on node1",
		},
		{Migrate, vm, Guest{Node: "node2"}, "VM web has moved and runs on node2"},
		{Migrate, vm, Guest{Node: "node2", Paused: true}, "VM web has moved and is paused on node2"},
		{Restart, vm, Guest{Node: "node2", Paused: true}, "VM web is paused on node2"},
		{MigrateCancel, vm, Guest{}, "VM web does not migrate any more"},
		{MigrateCancel, vm, Guest{Node: "node1"}, "VM web does not migrate any more, and stays on node1"},
		{MigrateCancel, vm, Guest{Node: "node1", Again: true}, "VM web has stayed on node1, and migrates again"},
		{Delete, vm, Guest{}, ""},
	} {
		if got := Reached(c.verb, c.target, c.guest); got != c.want {
			t.Errorf("%s: %q, not %q", c.verb, got, c.want)
		}
	}
}
