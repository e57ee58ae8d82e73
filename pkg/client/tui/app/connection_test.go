package app

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/store"
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
