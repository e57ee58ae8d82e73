package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// secret may not be read.
type secret struct{ *recorder }

func (s *secret) VM(_ context.Context, _, name string) (*v1.VirtualMachine, error) {
	return nil, apierrors.NewForbidden(v1.Resource(client.VMs), name, errors.New("no"))
}

// TestVerbsSpareAnother: no verb is asked of a machine that has the name of the one that is meant.
func TestVerbsSpareAnother(t *testing.T) {
	vm, lone := machine(v1.RunStrategyAlways), instance(v1.Running)
	for _, verb := range []Verb{
		Start, Stop, Restart, Pause, Unpause, Reset, SoftReboot, Migrate, MigrateCancel, EvacuateCancel,
	} {
		moving := []v1.VirtualMachineInstanceMigration{migration("m", v1.MigrationRunning, 1)}
		ask := func(target Target) ([]string, error) {
			r := &recorder{vm: vm, vmi: lone, migrations: moving}
			if verb == Migrate && target.WithDisks {
				r.migrations = nil
			}
			err := Do(t.Context(), r, verb, target, Options{})
			return r.lines, err
		}
		for _, of := range []Target{
			{Namespace: "ns", Name: "vm", UID: "vm"},
			{Namespace: "ns", Name: "vm", UID: "vm", WithDisks: true},
			{Namespace: "ns", Name: "vm", UID: "vmi", Instance: true},
			{Namespace: "ns", Name: "vm", InstanceUID: "vmi"},
		} {
			if of.Instance && !verb.TakesInstance() {
				continue
			}
			if lines, err := ask(of); err != nil || len(lines) != 1 {
				t.Errorf("%s of %+v: %v, asked %q", verb, of, err, lines)
			}
			if of.UID != "" {
				of.UID = "earlier"
			} else {
				of.InstanceUID = "earlier"
			}
			lines, err := ask(of)
			if len(lines) > 0 || !errors.Is(err, action.ErrNotFound) ||
				!strings.HasSuffix(err.Error(), "it is gone, and another of its name stays as it is") {
				t.Errorf("%s of another than %+v: %v, asked %q", verb, of, err, lines)
			}
		}
	}
	gone := &recorder{missing: []string{client.VMs}}
	err := Do(t.Context(), gone, Pause, Target{Namespace: "ns", Name: "vm", UID: "vm"}, Options{})
	if len(gone.lines) > 0 || !errors.Is(err, action.ErrNotFound) || err.Error() != "pause VMI ns/vm: it is gone" {
		t.Errorf("one that is gone: %v, asked %q", err, gone.lines)
	}
	hidden := &secret{&recorder{}}
	if err := Do(t.Context(), hidden, Stop, Target{Namespace: "ns", Name: "vm", UID: "vm"}, Options{}); err != nil {
		t.Errorf("who may not read it: %v", err)
	}
}

// TestChooseMeans: what a selector has found is meant, and no other of its name.
func TestChooseMeans(t *testing.T) {
	lone := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) { vmi.Name, vmi.UID = "lone", "alone" })
	owned := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(machine(v1.RunStrategyAlways), v1.VirtualMachineGroupVersionKind),
		}
	})
	w := &world{
		vms:  []v1.VirtualMachine{*machine(v1.RunStrategyAlways)},
		vmis: []v1.VirtualMachineInstance{*owned, *lone},
	}
	moving := migration("m", v1.MigrationRunning, 1)
	moving.UID = "mig"
	w.migrations = []v1.VirtualMachineInstanceMigration{moving}
	for verb, want := range map[Verb][]types.UID{Delete: {"alone", "vm"}, Stop: {"vm"}, MigrateCancel: {"vm"}} {
		choice, err := Choose(t.Context(), w, verb, false, "ns", "")
		if err != nil {
			t.Fatal(err)
		}
		var got []types.UID
		for _, target := range choice.Targets {
			got = append(got, target.UID)
			if cancels := verb == MigrateCancel; cancels != (target.Migration == "mig") {
				t.Errorf("%s of %s means migration %q", verb, target, target.Migration)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s means %q, not %q", verb, got, want)
		}
	}
}

// TestChooseCancels: of two migrations that are not over, what a selector has found is what the cancel is about.
func TestChooseCancels(t *testing.T) {
	of := func(name string, at int64, deleted bool) v1.VirtualMachineInstanceMigration {
		m := migration(name, v1.MigrationRunning, at)
		m.UID = types.UID(name)
		if deleted {
			m.DeletionTimestamp = &metav1.Time{}
		}
		return m
	}
	list := func(m ...v1.VirtualMachineInstanceMigration) []v1.VirtualMachineInstanceMigration { return m }
	owned := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(machine(v1.RunStrategyAlways), v1.VirtualMachineGroupVersionKind),
		}
	})
	for name, c := range map[string]struct {
		migrations []v1.VirtualMachineInstanceMigration
		want       string
	}{
		"the newer is first":          {list(of("a", 2, false), of("b", 1, false)), "a"},
		"the newer is last":           {list(of("a", 1, false), of("b", 2, false)), "b"},
		"the newer is being deleted":  {list(of("a", 1, false), of("b", 2, true)), "a"},
		"the last is being cancelled": {list(of("a", 2, false), of("b", 1, true)), "a"},
	} {
		w := &world{
			recorder: recorder{vm: machine(v1.RunStrategyAlways), vmi: owned, migrations: c.migrations},
			vms:      []v1.VirtualMachine{*machine(v1.RunStrategyAlways)},
			vmis:     []v1.VirtualMachineInstance{*owned},
		}
		choice, err := Choose(t.Context(), w, MigrateCancel, false, "ns", "")
		if err != nil || len(choice.Targets) != 1 {
			t.Fatalf("%s: %+v, %v", name, choice, err)
		}
		err = Do(t.Context(), w, MigrateCancel, choice.Targets[0], Options{})
		want := "delete virtualmachineinstancemigrations ns " + c.want + " "
		if err != nil || len(w.lines) != 1 || !strings.HasPrefix(w.lines[0], want) {
			t.Errorf("%s: %v, asked %q", name, err, w.lines)
		}
	}
}
