package app

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestBadgeIsOfWhatIsShown is of a user who may not list VMs and looks at what was read just now.
func TestBadgeIsOfWhatIsShown(t *testing.T) {
	t.Parallel()
	f := &fake{doctor: &doctor.Report{Checks: []doctor.Check{
		{Area: "client", Name: "version", Status: "ok", Message: "virtctl v1"},
	}}}
	w := world(f)
	w.Machines = store.NewMachines(func() {})
	w.Machines.Lost(now.Add(-14*time.Second), apierrors.NewForbidden(v1.Resource("virtualmachines"), "", nil))
	a := New(w)
	press(t, a, "5")
	if s := a.screen(); strings.Contains(s, "STALE") || !strings.Contains(s, "virtctl v1") {
		t.Error(s)
	}
	// When the connection goes it is of the past.
	w.Machines.Lost(now.Add(-5*time.Second), errCut)
	drive(t, a, Changed{})
	if s := a.screen(); !strings.Contains(s, "STALE for 5s") {
		t.Error(s)
	}
}

// TestNodesThatMayNotBeRead are in no namespace: none is advised.
func TestNodesThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	w := world(&fake{})
	w.Nodes = store.NewTable[store.Node](func() {})
	w.Nodes.Lost(now, apierrors.NewForbidden(v1.Resource("nodes"), "", nil))
	a := New(w)
	press(t, a, "2")
	if s := a.screen(); strings.Contains(s, ":namespace") || !strings.Contains(s, ":context shows another cluster") {
		t.Error(s)
	}
}

// TestNamespaceThatGoes is of a namespace without VMs that is being deleted, and then is not there.
func TestNamespaceThatGoes(t *testing.T) {
	t.Parallel()
	w := world(&fake{})
	w.Namespace = "old"
	w.Machines = store.NewMachines(func() {})
	w.Machines.Load(nil, nil)
	phase := page.NamespaceThere
	w.NamespacePhase = func() page.NamespacePhase { return phase }
	a := New(w)
	shows := func(want string, not ...string) {
		t.Helper()
		drive(t, a, Changed{})
		s := a.screen()
		if !strings.Contains(strings.Join(strings.Fields(s), " "), want) {
			t.Errorf("nothing says %q:\n%s", want, s)
		}
		for _, text := range not {
			if strings.Contains(s, text) {
				t.Errorf("it says %q:\n%s", text, s)
			}
		}
	}
	const makes = "The key + makes one"
	shows("There are no virtual machines in namespace old")
	phase = page.NamespaceDeleting
	shows("Namespace old is being deleted, and has no virtual machines", makes, "There are no")
	phase = page.NamespaceGone
	shows("There is no namespace old", makes, "There are no")
	press(t, a, "4")
	w.Events.Load(nil)
	shows("There is no namespace old")
	press(t, a, "2")
	w.Nodes.Load(nil)
	shows("There are no nodes here", "There is no namespace")
}

// TestNoWayIntoGuests is of a user who may look at VMs only: the keys that lead into a guest are dim and say why.
func TestNoWayIntoGuests(t *testing.T) {
	t.Parallel()
	w := world(&fake{})
	a := New(w)
	press(t, a, "down")
	ran := a.top().Hints()
	allowed := map[string]bool{}
	for _, h := range ran {
		allowed[h.Name] = h.Why == ""
	}
	f := &fake{forbidden: "you may not"}
	a = New(world(f))
	press(t, a, "down")
	for _, h := range a.top().Hints() {
		switch h.Name {
		case "console", "split", "screen", "vnc web", "ssh":
			if !allowed[h.Name] || h.Why != "you may not" {
				t.Errorf("%s: %q, allowed to others %t", h.Name, h.Why, allowed[h.Name])
			}
		}
	}
	for _, key := range []string{"c", "C", "v", "V"} {
		a.notice = ""
		press(t, a, key)
		if len(a.stack) > 1 || a.notice != "You may not" || len(a.log) > 0 {
			t.Errorf("%s: notice %q, log %v", key, a.notice, a.log)
		}
	}
}
