package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

func machine(strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm"},
		Spec:       v1.VirtualMachineSpec{RunStrategy: &strategy},
	}
}

func instance(phase v1.VirtualMachineInstancePhase, conditions ...v1.VirtualMachineInstanceConditionType,
) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vmi"}}
	vmi.Status.Phase = phase
	for _, c := range conditions {
		vmi.Status.Conditions = append(vmi.Status.Conditions,
			v1.VirtualMachineInstanceCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return vmi
}

func changed[T any](object *T, change func(*T)) *T {
	change(object)
	return object
}

func TestApplies(t *testing.T) {
	running := instance(v1.Running, v1.VirtualMachineInstanceIsMigratable)
	paused := instance(v1.Running, v1.VirtualMachineInstancePaused)
	moving := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
		vmi.Status.EvacuationNodeName = "node1"
	})
	going := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	})
	halted, always := machine(v1.RunStrategyHalted), machine(v1.RunStrategyAlways)
	for _, test := range []struct {
		verb Verb
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		why  string
	}{
		{Start, halted, nil, ""},
		{Start, always, going, ""},
		{Start, always, running, "it is running"},
		{Start, nil, running, "it has no VirtualMachine"},
		{Stop, always, running, ""},
		{Stop, always, nil, ""},
		{Stop, halted, nil, "it is not running"},
		{Stop, halted, instance(v1.Succeeded), "it is not running"},
		{Restart, always, nil, "it is not running"},
		{Restart, always, running, ""},
		{Pause, always, running, ""},
		{Pause, nil, running, ""},
		{Pause, always, paused, "it is paused"},
		{Pause, always, instance(v1.Scheduled), "it is not running"},
		{Unpause, always, paused, ""},
		{Unpause, always, running, "it is not paused"},
		{Reset, always, paused, ""},
		{SoftReboot, always, paused, "it is paused"},
		{SoftReboot, always, running, ""},
		{Migrate, always, running, ""},
		{Migrate, always, paused, "it cannot be migrated"},
		{Migrate, always, moving, "it is migrating"},
		{Migrate, nil, running, "it has no VirtualMachine"},
		{MigrateCancel, always, moving, ""},
		{MigrateCancel, always, running, "it is not migrating"},
		{EvacuateCancel, nil, moving, ""},
		{EvacuateCancel, always, running, "it is not being evacuated"},
		{Delete, halted, nil, ""},
		{Delete, nil, going, "it is being deleted"},
	} {
		ok, why := Applies(test.verb, test.vm, test.vmi, false, false)
		if ok != (test.why == "") || why != test.why {
			t.Errorf("%s of vm %v, vmi %v: %v %q, want %q", test.verb, test.vm != nil, test.vmi, ok, why, test.why)
		}
	}
}

// A guest that only its disks keep on its node is moved with them, or left alone.
func TestAppliesWithDisks(t *testing.T) {
	always := machine(v1.RunStrategyAlways)
	tied := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(always, v1.VirtualMachineGroupVersionKind),
		}
		vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "c")}
		vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data"}}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
		}}
	})
	if ok, why := Applies(Migrate, always, tied, true, false); !ok {
		t.Error(why)
	}
	if ok, why := Applies(Migrate, always, tied, false, false); ok ||
		why != "it can be migrated only with its disks (--with-disks)" {
		t.Errorf("%t %q", ok, why)
	}
	tied.Spec.Domain.Devices.Disks[0].Shareable = new(true)
	if ok, why := Applies(Migrate, always, tied, true, false); ok || why != "it cannot be migrated" {
		t.Errorf("%t %q", ok, why)
	}
}

type world struct {
	recorder
	vms  []v1.VirtualMachine
	vmis []v1.VirtualMachineInstance
}

func (w *world) VMList(context.Context, string, metav1.ListOptions) (*v1.VirtualMachineList, error) {
	return &v1.VirtualMachineList{Items: w.vms}, nil
}

func (w *world) VMIList(_ context.Context, _ string, opts metav1.ListOptions) (*v1.VirtualMachineInstanceList, error) {
	list := &v1.VirtualMachineInstanceList{}
	for _, vmi := range w.vmis {
		if opts.LabelSelector == "" || vmi.Labels["matches"] == opts.LabelSelector {
			list.Items = append(list.Items, vmi)
		}
	}
	return list, nil
}

func TestChoose(t *testing.T) {
	owned := instance(v1.Running)
	owned.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(machine(v1.RunStrategyAlways), v1.VirtualMachineGroupVersionKind),
	}
	lone := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.Name, vmi.Labels = "lone", map[string]string{"matches": "a=b"}
	})
	other := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) { vmi.Name = "other" })
	down := changed(machine(v1.RunStrategyHalted), func(vm *v1.VirtualMachine) { vm.Name, vm.UID = "down", "down" })
	w := &world{
		vms:  []v1.VirtualMachine{*machine(v1.RunStrategyAlways), *down},
		vmis: []v1.VirtualMachineInstance{*owned, *lone, *other},
	}
	w.migrations = []v1.VirtualMachineInstanceMigration{
		migration("over", v1.MigrationFailed, 1), migration("waits", v1.MigrationScheduling, 2),
	}
	for _, test := range []struct {
		verb                     Verb
		selector, chosen, leaves string
	}{
		{Stop, "", "vm", "down"},
		{Pause, "", "lone* other* vm", "down"},
		{Pause, "a=b", "lone* vm", "down"},
		{Start, "", "down", "vm"},
		// No instance knows of a migration that waits for its target pod.
		{MigrateCancel, "", "vm", "down"},
		{Migrate, "", "", "down vm"},
	} {
		choice, err := Choose(t.Context(), w, test.verb, false, "ns", test.selector)
		if err != nil {
			t.Fatal(err)
		}
		var chosen, skipped []string
		for _, c := range choice.Targets {
			name := c.Name
			if c.Instance {
				name += "*"
			}
			chosen = append(chosen, name)
		}
		for _, s := range choice.Skipped {
			skipped = append(skipped, s.Target.Name)
		}
		if got := strings.Join(chosen, " "); got != test.chosen {
			t.Errorf("%s -l %q: %s, want %s", test.verb, test.selector, got, test.chosen)
		}
		if got := strings.Join(skipped, " "); got != test.leaves {
			t.Errorf("%s -l %q leaves %s, want %s", test.verb, test.selector, got, test.leaves)
		}
	}
}

func migration(name string, phase v1.VirtualMachineInstanceMigrationPhase, made int64,
) v1.VirtualMachineInstanceMigration {
	return v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.Unix(made, 0)},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: "vm"},
		Status:     v1.VirtualMachineInstanceMigrationStatus{Phase: phase},
	}
}

func TestCancelMigration(t *testing.T) {
	vm := Target{Namespace: "ns", Name: "vm"}
	r := &recorder{migrations: []v1.VirtualMachineInstanceMigration{
		migration("old", v1.MigrationSucceeded, 9), migration("under-way", v1.MigrationRunning, 5),
	}}
	if err := Do(t.Context(), r, MigrateCancel, vm, Options{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"delete virtualmachineinstancemigrations ns under-way {}"}; !slices.Equal(r.lines, want) {
		t.Errorf("%q", r.lines)
	}
	r.migrations = r.migrations[:1]
	if err := Do(t.Context(), r, MigrateCancel, vm, Options{}); !errors.Is(err, action.ErrNotFound) {
		t.Errorf("nothing to cancel: %v", err)
	}
}

// TestCancelMigrationOfNothing says that there is no such machine rather than that it does not migrate.
func TestCancelMigrationOfNothing(t *testing.T) {
	const nothing = "found no migration to cancel"
	for _, test := range []struct {
		missing  []string
		instance bool
		want     string
	}{
		{nil, false, nothing},
		{[]string{client.VMIs}, false, nothing},
		{[]string{client.VMs}, false, nothing}, // an instance without a VM
		{[]string{client.VMs, client.VMIs}, false, `virtualmachines.kubevirt.io "vm" not found`},
		{[]string{client.VMIs}, true, `virtualmachineinstances.kubevirt.io "vm" not found`},
	} {
		target := Target{Namespace: "ns", Name: "vm", Instance: test.instance}
		err := Do(t.Context(), &recorder{missing: test.missing}, MigrateCancel, target, Options{})
		if err == nil || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("without %v, instance %t: %v, want %s", test.missing, test.instance, err, test.want)
		}
	}
}

// course is a migration that goes through phases, each told by a watch.
type course struct {
	recorder
	events *watch.FakeWatcher
}

func (c *course) Watch(context.Context, string, string, metav1.ListOptions) (watch.Interface, error) {
	return c.events, nil
}

func TestFollow(t *testing.T) {
	for end, want := range map[v1.VirtualMachineInstanceMigrationPhase]string{
		v1.MigrationSucceeded: "",
		v1.MigrationFailed:    "migration of VMI ns/vm failed: no room",
	} {
		c := &course{events: watch.NewFakeWithChanSize(5, false)}
		c.migrations = []v1.VirtualMachineInstanceMigration{migration("m", v1.MigrationPending, 1)}
		for _, phase := range []v1.VirtualMachineInstanceMigrationPhase{v1.MigrationRunning, end} {
			m := migration("m", phase, 1)
			m.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourceNode: "a", TargetNode: "b"}
			if phase == v1.MigrationFailed {
				m.Status.MigrationState.FailureReason = "no room"
			}
			c.events.Modify(&m)
		}
		var seen []string
		got, err := Follow(t.Context(), c, "ns", "m", func(m *v1.VirtualMachineInstanceMigration) {
			seen = append(seen, Progress(m))
		})
		if got == nil || got.Status.Phase != end {
			t.Errorf("ends as %+v", got)
		}
		if text := strings.Join(seen, "; "); text != "Pending; Running, a → b; "+string(end)+", a → b" {
			t.Errorf("saw %q", text)
		}
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: error %v, want %q", end, err, want)
		}
	}
	c := &course{}
	if _, err := Follow(t.Context(), c, "ns", "m", nil); err == nil || !strings.Contains(err.Error(), "cancelled") {
		t.Errorf("a migration that is gone: %v", err)
	}
}
