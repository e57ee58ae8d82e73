package overview

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

func TestMake(t *testing.T) {
	r := Make("kind", "", []*store.Machine{
		{Namespace: "b", Name: "web", Status: "Running", Phase: v1.Running, Node: "n1"},
		{Namespace: "a", Name: "off", Status: "Stopped"},
		{Namespace: "b", Name: "done", Status: "Succeeded", Phase: v1.Succeeded, Node: "n1", Instance: true},
		{Namespace: "b", Name: "held", Status: "Paused", Phase: v1.Running, Paused: true, Instance: true},
	}, []*store.Node{{Name: "n2"}, {Name: "n1", Ready: true, Heartbeat: time.Unix(9, 0)}}, []*store.Migration{
		{
			Namespace: "b", Name: "old", Machine: "web", Created: time.Unix(1, 0), Phase: v1.MigrationFailed,
			Failure: "no",
		},
		{
			Namespace: "b", Name: "new", Machine: "web", Created: time.Unix(2, 0), Phase: v1.MigrationRunning,
			From: "n1", To: "n2",
		},
	})
	var got []string
	for _, m := range r.Machines {
		got = append(got, m.Namespace+"/"+m.Name+" "+m.Status)
	}
	for _, n := range r.Nodes {
		got = append(got, n.Name)
	}
	for _, m := range r.Migrations {
		got = append(got, m.Name)
	}
	if diff := cmp.Diff([]string{
		"a/off Stopped", "b/done Succeeded", "b/held Running", "b/web Running", "n1", "n2", "new", "old",
	}, got); diff != "" {
		t.Error(diff)
	}
	// What has ended is on no node.
	if n := r.Nodes[0]; n.Machines != 1 || n.Heartbeat == nil || r.Nodes[1].Heartbeat != nil {
		t.Errorf("%+v", r.Nodes)
	}
}

func TestChanges(t *testing.T) {
	before := &Report{
		Machines: []Machine{
			{Namespace: "a", Name: "same", Status: "Running", Ready: true},
			{Namespace: "a", Name: "web", Status: "Starting"},
			{Namespace: "a", Name: "gone"},
		},
		Nodes: []Node{{Name: "n1", Ready: true, Schedulable: true}},
	}
	now := &Report{
		Machines: []Machine{
			// CPUs are not worth a line.
			{Namespace: "a", Name: "same", Status: "Running", Ready: true, CPUs: 2},
			{Namespace: "a", Name: "web", Status: "Running", Node: "n1", IPs: []string{"10.0.0.1"}},
			{Namespace: "a", Name: "bad", Status: "ErrorUnschedulable", Trouble: "no node has room"},
			{Namespace: "a", Name: "young"}, // its status is not written yet
		},
		Nodes: []Node{{Name: "n1", Cordoned: true}},
		Migrations: []Migration{
			{
				Namespace: "a", Name: "m", VMI: "web", Phase: "Failed", SourceNode: "n1", TargetNode: "n2",
				FailureReason: "cancelled",
			},
		},
	}
	want := []string{
		"VM a/web: Running, not ready, on n1, at 10.0.0.1",
		"VM a/bad: ErrorUnschedulable, no node has room",
		"VM a/young: created",
		"VM a/gone: deleted",
		"node n1: not ready, cordoned, guests cannot run there",
		"migration a/m: Failed, VM web from n1 to n2: cancelled",
	}
	if diff := cmp.Diff(want, Changes(before, now)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if again := Changes(now, now); len(again) > 0 {
		t.Errorf("nothing changed, and %q", again)
	}
	if first := Changes(nil, before); len(first) != 4 {
		t.Errorf("at first %q", first)
	}
}
