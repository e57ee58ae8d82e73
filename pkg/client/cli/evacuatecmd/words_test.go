package evacuatecmd

import (
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
)

func TestSentence(t *testing.T) {
	for want, g := range map[string]evacuate.Guest{
		"VMI shop/web has moved and runs on node2": {State: evacuate.Left, Outcome: evacuate.Moves, Now: "node2"},
		"VMI shop/web was started anew and runs on node2": {
			State: evacuate.Left, Outcome: evacuate.Restarts, Now: "node2",
		},
		"VMI shop/web is stopped, and is to start elsewhere": {State: evacuate.Moving, Outcome: evacuate.Restarts},
		"VMI shop/web migrates to node2": {
			State: evacuate.Moving, Outcome: evacuate.Moves, Target: "node2",
		},
		"VMI shop/web migrates":                             {State: evacuate.Moving, Outcome: evacuate.Waits},
		"VMI shop/web is stopped":                           {State: evacuate.Stopped, Outcome: evacuate.Ends},
		"VMI shop/web runs on node1 and is marked to leave": {State: evacuate.Asked, Outcome: evacuate.Marked},
		"VMI shop/web runs on node1 and was asked to leave": {State: evacuate.Asked, Outcome: evacuate.Moves},
		"VMI shop/web runs on node1 and stays there: no right": {
			State: evacuate.Refused, Outcome: evacuate.Marked, Reason: "no right",
		},
		"VMI shop/web runs on node1 and was asked to leave: its last migration failed: x": {
			State: evacuate.Asked, Outcome: evacuate.Moves, Reason: "its last migration failed: x",
		},
		"VMI shop/web has moved and runs on node2 with its disks; claim a is kept, unless an annotation says Delete": {
			State: evacuate.Left, Outcome: evacuate.Moves, Now: "node2", WithDisks: true,
			Copied: []evacuate.Copied{{From: "a"}},
		},
		"VMI shop/web has moved and runs on node2 with its disks; claims a, b are kept" + unlessDeleted: {
			State: evacuate.Left, Outcome: evacuate.Moves, Now: "node2", WithDisks: true,
			Copied: []evacuate.Copied{{From: "a"}, {From: "b"}},
		},
		"VMI shop/web migrates to node2 with its disks": {
			State: evacuate.Moving, Outcome: evacuate.Moves, Target: "node2", WithDisks: true,
		},
	} {
		g.Namespace, g.Name = "shop", "web"
		if got := sentence(&g, "node1"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSummary(t *testing.T) {
	left, stopped := evacuate.Guest{State: evacuate.Left}, evacuate.Guest{State: evacuate.Stopped}
	here := evacuate.Guest{State: evacuate.Asked}
	for _, c := range []struct {
		cordoned bool
		guests   []evacuate.Guest
		want     string
	}{
		{true, nil, "node node1 is cordoned"},
		{true, []evacuate.Guest{left}, "node node1 is cordoned, and its guest has left"},
		{false, []evacuate.Guest{left, stopped}, "node node1 is not cordoned, and its 2 guests have left"},
		{true, []evacuate.Guest{left, here}, "node node1 is cordoned, and 1 of 2 guests have not left it"},
	} {
		if got := summary(&evacuate.Report{Node: "node1", Cordoned: c.cordoned, Guests: c.guests}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
