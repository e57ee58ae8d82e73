package rename

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

const interval = time.Millisecond

// full is a cluster with a VM that has something of everything.
func full() *cluster {
	old := halted("old", func(vm *v1.VirtualMachine) {
		*vm.Spec.RunStrategy = v1.RunStrategyManual
		vm.Spec.Template.Spec.Volumes = []v1.Volume{{Name: "init", VolumeSource: v1.VolumeSource{
			CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserDataSecretRef: secretNamed("disk")},
		}}}
	})
	c := newCluster(old)
	dv, revision := disk(DataVolumes, "uid-old"), disk(Revisions, "uid-old")
	for _, d := range []*Dependent{&dv, &revision} {
		d.Meta.OwnerReferences[0].Controller = new(true)
	}
	c.add(dv, revision, state("old", "uid-old"), disk(Secrets, "uid-old"), disk(Services, "uid-old"))
	given := state("old")
	given.Meta.Name = "given"
	c.add(given)
	return c
}

// invariant is what must be so at every moment: one VM at most may start, and it finds its state; there is a VM, and
// nothing was erased.
func invariant(t *testing.T, c *cluster, when string) {
	t.Helper()
	var startable []*v1.VirtualMachine
	for _, vm := range c.vms {
		renaming, err := identity.RenamingOf(vm)
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if renaming == nil && vm.DeletionTimestamp == nil {
			startable = append(startable, vm)
		}
	}
	if len(c.vms) == 0 || len(startable) > 1 {
		t.Errorf("%s: %d VMs, of which %d may start", when, len(c.vms), len(startable))
	}
	if len(c.erased) > 0 {
		t.Errorf("%s: erased %v", when, c.erased)
	}
	for _, vm := range startable {
		found := 0
		for _, o := range c.objects {
			if o.Labels[vmstate.Prefix] == vm.Name && (len(o.OwnerReferences) == 0 || owned(o, vm.UID)) {
				found++
			}
		}
		if found != 2 {
			t.Errorf("%s: VM %s finds %d of the 2 claims with its state", when, vm.Name, found)
		}
	}
}

// whole checks the end: the new VM has everything, alone.
func whole(t *testing.T, c *cluster, when string) {
	t.Helper()
	vm := c.vms["new"]
	if vm == nil || len(c.vms) != 1 {
		t.Fatalf("%s: %v", when, c.vms)
	}
	if *vm.Spec.RunStrategy != v1.RunStrategyManual || vm.Annotations[identity.RenamingFrom] != "" ||
		vm.Annotations[identity.RenamedFrom] != "old" {
		t.Errorf("%s: %+v %s", when, vm.ObjectMeta, *vm.Spec.RunStrategy)
	}
	if len(c.objects) != 6 {
		t.Errorf("%s: %d objects", when, len(c.objects))
	}
	for key, o := range c.objects {
		switch {
		case key == "persistentvolumeclaims/given":
			if len(o.OwnerReferences) > 0 {
				t.Errorf("%s: %s was nobody's, and is %+v", when, key, o.OwnerReferences)
			}
		case len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != vm.UID:
			t.Errorf("%s: %s belongs to %+v", when, key, o.OwnerReferences)
		}
		controlled := strings.HasPrefix(key, "datavolumes/") || strings.HasPrefix(key, "controllerrevisions/")
		if (metav1.GetControllerOf(o) != nil) != controlled {
			t.Errorf("%s: controller of %s: %+v", when, key, o.OwnerReferences)
		}
	}
}

// A rename that is killed at any write, before or after it was done, is taken up by the next one; with a collector that
// orphans in time and with one that does not.
func TestRunKilledAnywhere(t *testing.T) {
	points := 0
	for _, late := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for kill := 0; ; kill++ {
				when := fmt.Sprintf("killed at write %d, done %t, late collector %t", kill, after, late)
				c := full()
				c.late, c.kill, c.after = late, kill, after
				c.check = func() { invariant(t, c, when) }
				_, err := New(c, request).Run(t.Context(), interval)
				if c.writes <= kill {
					if err != nil {
						t.Fatalf("not killed: %v", err)
					}
					whole(t, c, "not killed")
					break
				}
				points++
				if !errors.Is(err, errKilled) {
					t.Fatalf("%s: %v", when, err)
				}
				invariant(t, c, when)
				if _, err := New(c, request).Run(t.Context(), interval); err != nil {
					t.Fatalf("%s, again: %v", when, err)
				}
				whole(t, c, when)
			}
		}
	}
	if points < 40 {
		t.Errorf("only %d kills", points)
	}
}

// A start, or any other change, between the look and the removal keeps the old VM.
func TestRunStartedMeanwhile(t *testing.T) {
	c := full()
	c.check = func() { invariant(t, c, "started meanwhile") }
	c.before = func(verb, what string) {
		if verb == "delete" && what == "virtualmachines/old" {
			c.vmis["old"] = true
			c.vms["old"].ResourceVersion = c.next()
		}
	}
	_, err := New(c, request).Run(t.Context(), interval)
	var unfinished *UnfinishedError
	if !errors.As(err, &unfinished) || !strings.Contains(err.Error(), "stop it first") ||
		!strings.Contains(err.Error(), "`virtctl rename old new -n ns` goes on") {
		t.Fatalf("%v", err)
	}
	if vm := c.vms["old"]; vm == nil || vm.DeletionTimestamp != nil {
		t.Error("the old VM is gone")
	}
}

// What was changed between two runs is in the new VM, too.
func TestRunChangedMeanwhile(t *testing.T) {
	c := full()
	c.kill = 2 // the heir is there
	if _, err := New(c, request).Run(t.Context(), interval); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if c.vms["new"] == nil {
		t.Fatal("there is no heir yet")
	}
	c.vms["old"].Spec.Template.Spec.Hostname = "changed"
	c.vms["old"].ResourceVersion = c.next()
	vm, err := New(c, request).Run(t.Context(), interval)
	if err != nil || vm.Spec.Template.Spec.Hostname != "changed" {
		t.Fatalf("%+v, %v", vm, err)
	}
	whole(t, c, "changed meanwhile")
}

// Of two renames of one VM at most one goes through.
func TestRunRace(t *testing.T) {
	for kill := range 12 {
		c := full()
		c.kill, c.after = kill, true
		c.check = func() { invariant(t, c, "race") }
		_, err := New(c, request).Run(t.Context(), interval)
		if !errors.Is(err, errKilled) {
			t.Fatalf("%d: %v", kill, err)
		}
		other := Request{Namespace: "ns", Name: "old", To: "third"}
		if _, err := New(c, other).Run(t.Context(), interval); err == nil || c.vms["third"] != nil {
			t.Errorf("killed at %d: also renamed to third, %v", kill, err)
		}
	}
}

func TestRunTwice(t *testing.T) {
	c := full()
	for range 2 {
		if _, err := New(c, request).Run(t.Context(), interval); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := New(c, request).Plan(t.Context())
	if err != nil || !plan.Done {
		t.Errorf("%+v, %v", plan, err)
	}
	whole(t, c, "twice")
}

// A VM that does not go in time is no failure of the rename, which goes on later.
func TestRunTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := full()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := New(held{c}, request).Run(ctx, interval)
		if !errors.Is(err, action.ErrTimeout) {
			t.Fatalf("%v", err)
		}
		if _, err := New(c, request).Run(t.Context(), interval); err != nil {
			t.Fatal(err)
		}
		whole(t, c, "after the timeout")
	})
}

// held shows a VM that was deleted as one that is still going.
type held struct{ *cluster }

func (h held) VM(ctx context.Context, ns, name string) (*v1.VirtualMachine, error) {
	vm, err := h.cluster.VM(ctx, ns, name)
	if err != nil && name == "old" {
		return halted("old", marked("new"), going), nil
	}
	return vm, err
}

func TestPlan(t *testing.T) {
	c := full()
	plan, err := New(c, request).Plan(t.Context())
	if err != nil || !plan.Goes || plan.VM.Name != "new" || c.writes > 0 {
		t.Fatalf("%+v, %v, %d writes", plan, err, c.writes)
	}
	slices.Sort(plan.Passes)
	want := []string{
		"controllerrevisions/disk", "datavolumes/disk", "persistentvolumeclaims/given", "persistentvolumeclaims/state",
		"secrets/disk", "services/disk",
	}
	if !slices.Equal(plan.Passes, want) {
		t.Errorf("%q", plan.Passes)
	}
	if err := New(c, request).Try(t.Context(), plan); err != nil || c.writes > 0 {
		t.Errorf("%v, %d writes", err, c.writes)
	}
}

func TestPlanRights(t *testing.T) {
	for denied, want := range map[string][]Right{
		"create/virtualmachines":       {{"create", "kubevirt.io", "virtualmachines"}},
		"delete/virtualmachines":       {{"delete", "kubevirt.io", "virtualmachines"}},
		"patch/virtualmachines":        {{"patch", "kubevirt.io", "virtualmachines"}},
		"patch/persistentvolumeclaims": {{"patch", "", "persistentvolumeclaims"}},
		"patch/datavolumes":            {{"patch", "cdi.kubevirt.io", "datavolumes"}},
		"list/persistentvolumeclaims":  {{"list", "", "persistentvolumeclaims"}},
		"list/datavolumes create/virtualmachines patch/persistentvolumeclaims": {
			{"list", "cdi.kubevirt.io", "datavolumes"},
			{"create", "kubevirt.io", "virtualmachines"},
			{"patch", "", "persistentvolumeclaims"},
		},
	} {
		c := full()
		c.denied = strings.Fields(denied)
		_, err := New(c, request).Plan(t.Context())
		var missing *NotAllowedError
		if !errors.As(err, &missing) || !slices.Equal(missing.Missing, want) {
			t.Errorf("without %s: %v", denied, err)
		}
	}
	// A right to a kind that the cluster does not have is not needed.
	plain := full()
	plain.plain, plain.denied = true, []string{"list/datavolumes"}
	if _, err := New(plain, request).Plan(t.Context()); err != nil {
		t.Errorf("without CDI: %v", err)
	}
	// What is no data stays as nobody's.
	c := full()
	c.denied = []string{"patch/controllerrevisions", "list/services"}
	plan, err := New(c, request).Plan(t.Context())
	if err != nil ||
		!slices.ContainsFunc(plan.Notes, func(n string) bool {
			return strings.Contains(n, "controllerrevisions/disk")
		}) {
		t.Fatalf("%+v, %v", plan, err)
	}
	if _, err := New(c, request).Run(t.Context(), interval); err != nil {
		t.Fatal(err)
	}
	if o := c.objects["controllerrevisions/disk"]; o == nil || len(o.OwnerReferences) > 0 {
		t.Errorf("%+v", o)
	}
}

// A rename that its user interrupts while the old VM goes says that it has begun, and goes on when it is asked for
// again; one that has changed nothing yet is no more than interrupted.
func TestRunInterrupted(t *testing.T) {
	c := full()
	ctx, cancel := context.WithCancel(t.Context())
	deleted := false
	c.before = func(verb, what string) {
		if deleted = deleted || verb == "delete"; deleted {
			cancel()
		}
	}
	_, err := New(held{c}, request).Run(ctx, interval)
	var begun *UnfinishedError
	if !errors.As(err, &begun) || !errors.Is(err, context.Canceled) || begun.Request != request {
		t.Fatalf("%v", err)
	}
	c.before = nil
	if _, err := New(c, request).Run(t.Context(), interval); err != nil {
		t.Fatal(err)
	}
	whole(t, c, "after the interrupt")
}
