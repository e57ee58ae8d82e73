package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestEvacuationFollows evacuates a node: the page reads its plan again as guests leave, and says how far each is.
func TestEvacuationFollows(t *testing.T) {
	t.Parallel()
	f := &fake{plan: &evacuate.Report{Node: "node1", Guests: []evacuate.Guest{
		{Namespace: "prod", Name: "db", Outcome: evacuate.Restarts, Target: "node2", Reason: "it cannot move"},
		{Namespace: "prod", Name: "web", Outcome: evacuate.Moves, Target: "node2"},
	}}}
	w := world(f)
	at := now
	w.Now = func() time.Time { return at }
	machines := func(db, web string) {
		var vmis []v1.VirtualMachineInstance
		for name, node := range map[string]string{"db": db, "web": web} {
			vmis = append(vmis, v1.VirtualMachineInstance{
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name},
				Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running, NodeName: node},
			})
		}
		w.Machines.Load(nil, vmis)
	}
	machines("node1", "node1")
	w.Migrations.Load(nil)
	a := New(w)
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	run(t, a, a.home(func(w *page.World) page.Page { return page.NewEvacuation(w, "node1") }), 0)
	shows := func(texts ...string) {
		t.Helper()
		screen := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				t.Errorf("%q is not shown:\n%s", text, a.screen())
			}
		}
	}
	shows("restarts prod/db node2 it cannot move")
	press(t, a, "E")
	shows("Evacuate node node1 of its 2 guests? 1 will be shut down.",
		"The node stays cordoned until O on the page of nodes uncordons it.")

	f.plan = &evacuate.Report{Node: "node1", Cordoned: true, Guests: slices.Clone(f.plan.Guests)}
	press(t, a, "y")
	shows("0 of 2 guests left", "The node stays cordoned until O", "moves prod/web node2")

	at = at.Add(5 * time.Second)
	w.Migrations.Load(map[store.Key]*store.Migration{{Namespace: "prod", Name: "m"}: {
		Namespace: "prod", Name: "m", Machine: "web", Phase: v1.MigrationRunning, From: "node1", To: "node3",
	}})
	machines("node2", "node1")
	f.plan = &evacuate.Report{Node: "node1", Cordoned: true, Guests: f.plan.Guests[1:]}
	a.top().Refresh()
	shows("1 of 2 guests left in 5s", "left prod/db node2", "moving prod/web node3")
	press(t, a, "E")
	shows("The guests of the node have changed, and the plan is being read again")
	drive(t, a, Changed{})
	press(t, a, "E")
	shows("Evacuate node node1 of its 1 guest? The node stays cordoned")
	press(t, a, "esc")

	at = at.Add(5 * time.Second)
	w.Migrations.Load(nil)
	machines("node2", "node3")
	f.plan = &evacuate.Report{Node: "node1", Cordoned: true}
	drive(t, a, Changed{})
	shows("No virtual machine runs on node node1 any more", "left prod/web node3")
	press(t, a, "E")
	shows("No guest runs there, and the node is cordoned already")

	// Guests of namespaces that are not shown have no rows: their plan is read again after a while.
	at = at.Add(time.Minute)
	f.plan = &evacuate.Report{Node: "node1"}
	press(t, a, "r", "E")
	shows("No virtual machine runs on node node1. It can be cordoned all the same.",
		"Cordon node node1? No guest runs there")
}

// TestEvacuationOfHiddenGuests follows guests that have no rows here by their plan alone.
func TestEvacuationOfHiddenGuests(t *testing.T) {
	t.Parallel()
	guests := []evacuate.Guest{{Namespace: "hidden", Name: "web", Outcome: evacuate.Moves}}
	f := &fake{plan: &evacuate.Report{Node: "node1", Cordoned: true, Guests: guests}}
	w := world(f)
	at := now
	w.Now = func() time.Time { return at }
	a := New(w)
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	run(t, a, a.home(func(w *page.World) page.Page { return page.NewEvacuation(w, "node1") }), 0)
	press(t, a, "E", "y")
	f.plan = &evacuate.Report{Node: "node1", Cordoned: true}
	at = at.Add(5 * time.Second)
	drive(t, a, Changed{})
	if !strings.Contains(a.screen(), "0 of 1 guest left") {
		t.Errorf("the plan is read too often:\n%s", a.screen())
	}
	at = at.Add(5 * time.Second)
	drive(t, a, Changed{})
	if screen := ansi.Strip(a.screen()); !strings.Contains(screen, "any more") || !strings.Contains(screen, "left  ") {
		t.Errorf("the plan was not read again:\n%s", screen)
	}
}
