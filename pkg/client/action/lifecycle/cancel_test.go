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
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// copying is a guest whose VM names another claim than the guest uses.
func copying() *v1.VirtualMachineInstance {
	return changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "new")}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"},
		}}
	})
}

// made is a guest's migration that runs.
func made(change func(*v1.VirtualMachineInstanceMigration)) v1.VirtualMachineInstanceMigration {
	m := migration("m", v1.MigrationRunning, 1)
	m.UID = "mig"
	change(&m)
	return m
}

func TestCancel(t *testing.T) {
	plain := made(func(*v1.VirtualMachineInstanceMigration) {})
	annotated := func(key, value string) v1.VirtualMachineInstanceMigration {
		return made(func(m *v1.VirtualMachineInstanceMigration) { m.Annotations = map[string]string{key: value} })
	}
	update := annotated(v1.WorkloadUpdateMigrationAnnotation, "")
	withDisks := annotated(volumemigration.WithDisksAnnotation, "true")
	outdated := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.Labels = map[string]string{v1.OutdatedLauncherImageLabel: ""}
	})
	leaving := changed(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.EvacuationNodeName = "node1"
	})
	const required, cpus, memory = v1.VirtualMachineInstanceMigrationRequired, v1.VirtualMachineInstanceVCPUChange,
		v1.VirtualMachineInstanceMemoryChange
	with := func(c v1.VirtualMachineInstanceConditionType) *v1.VirtualMachineInstance {
		return instance(v1.Running, c)
	}
	for name, c := range map[string]struct {
		m       v1.VirtualMachineInstanceMigration
		vmi     *v1.VirtualMachineInstance
		refused bool
		again   string
	}{
		"a user's":                        {m: plain, vmi: instance(v1.Running)},
		"of volume migrate":               {m: update, vmi: copying(), refused: true},
		"of volume migrate, by a user":    {m: plain, vmi: copying(), refused: true},
		"with disks, of another volume":   {m: withDisks, vmi: copying(), again: "disks are to be copied"},
		"of a launcher that is outdated":  {m: update, vmi: outdated, again: "outdated launcher"},
		"a user's, of an outdated one":    {m: plain, vmi: outdated},
		"of a new interface":              {m: update, vmi: with(required), again: "the network of an interface"},
		"of CPUs":                         {m: update, vmi: with(cpus), again: "CPUs"},
		"of memory":                       {m: update, vmi: with(memory), again: "memory"},
		"an evacuation":                   {m: plain, vmi: leaving, again: "it is to leave node node1"},
		"of an instance that is not read": {m: plain},
	} {
		r := &recorder{migrations: []v1.VirtualMachineInstanceMigration{c.m}, vmi: c.vmi}
		if c.vmi == nil {
			r.missing = []string{"virtualmachineinstances"}
		}
		got, err := Cancel(t.Context(), r, Target{Namespace: "ns", Name: "vm"}, Options{})
		var copies *CopyingError
		if errors.As(err, &copies) != c.refused || (err != nil) != c.refused || (len(r.lines) == 0) != c.refused {
			t.Errorf("%s: %v, asked %q", name, err, r.lines)
			continue
		}
		if c.refused {
			if want := "`virtctl volume migrate vm --cancel -n ns`"; !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not name %s", name, err, want)
			}
			continue
		}
		want := `delete virtualmachineinstancemigrations ns m {"preconditions":{"uid":"mig"}}`
		if !slices.Equal(r.lines, []string{want}) {
			t.Errorf("%s: asked %q, not %q", name, r.lines, want)
		}
		if !strings.Contains(got.Again, c.again) || c.again == "" && got.Again != "" {
			t.Errorf("%s: again %q, not %q", name, got.Again, c.again)
		}
	}
}

// A migration that has begun since the one that was meant goes on.
func TestCancelOfAnother(t *testing.T) {
	for meant, done := range map[types.UID]bool{"": true, "mig": true, "earlier": false} {
		m := made(func(*v1.VirtualMachineInstanceMigration) {})
		r := &recorder{migrations: []v1.VirtualMachineInstanceMigration{m}, vmi: instance(v1.Running)}
		_, err := Cancel(t.Context(), r, Target{Namespace: "ns", Name: "vm", Migration: meant}, Options{})
		if (err == nil) != done || (len(r.lines) == 1) != done {
			t.Errorf("%q: %v, asked %q", meant, err, r.lines)
		}
	}
}

// A volume that the VM names and the guest's spec does not yet is copied once the migration that is under way is over.
func TestCancelBeforeACopy(t *testing.T) {
	vmi := copying()
	vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "old"
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data"}}
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "mig"}
	vm := changed(machine(v1.RunStrategyAlways), func(vm *v1.VirtualMachine) {
		vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *vmi.Spec.DeepCopy()}
		vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "new"
	})
	r := &recorder{
		migrations: []v1.VirtualMachineInstanceMigration{made(func(*v1.VirtualMachineInstanceMigration) {})},
		vmi:        vmi, vm: vm,
	}
	got, err := Cancel(t.Context(), r, Target{Namespace: "ns", Name: "vm"}, Options{})
	if err != nil || got.Again != "its disks are to be copied to other claims" {
		t.Errorf("%+v, %v", got, err)
	}
}

// after is a cluster in which a migration that was cancelled is over.
type after struct {
	recorder
	vmis []v1.VirtualMachineInstance
}

func (a *after) VMList(context.Context, string, metav1.ListOptions) (*v1.VirtualMachineList, error) {
	return &v1.VirtualMachineList{Items: []v1.VirtualMachine{*machine(v1.RunStrategyAlways)}}, nil
}

func (a *after) VMIList(context.Context, string, metav1.ListOptions) (*v1.VirtualMachineInstanceList, error) {
	return &v1.VirtualMachineInstanceList{Items: a.vmis}, nil
}

func (a *after) Watch(context.Context, string, string, metav1.ListOptions) (watch.Interface, error) {
	return nil, apierrors.NewBadRequest("nothing is to be watched")
}

func TestCancelledWait(t *testing.T) {
	on := func(node string, state v1.VirtualMachineInstanceMigrationState) []v1.VirtualMachineInstance {
		vmi := instance(v1.Running)
		vmi.Status.NodeName, vmi.Status.MigrationState = node, &state
		return []v1.VirtualMachineInstance{*vmi}
	}
	type state = v1.VirtualMachineInstanceMigrationState
	moved := made(func(m *v1.VirtualMachineInstanceMigration) { m.Status.Phase = v1.MigrationSucceeded })
	stayed := made(func(m *v1.VirtualMachineInstanceMigration) { m.Status.Phase = v1.MigrationFailed })
	failed := state{MigrationUID: "mig", Completed: true, Failed: true}
	list := func(m ...v1.VirtualMachineInstanceMigration) []v1.VirtualMachineInstanceMigration { return m }
	for name, c := range map[string]struct {
		migrations []v1.VirtualMachineInstanceMigration
		vmis       []v1.VirtualMachineInstance
		late       string
	}{
		"cancelled":          {nil, on("node1", failed), ""},
		"seen to have ended": {list(stayed), on("node1", failed), ""},
		"had moved":          {nil, on("node2", state{MigrationUID: "mig", Completed: true}), "node2"},
		"seen to have moved": {list(moved), on("node2", state{MigrationUID: "other"}), "node2"},
		"had not begun":      {nil, on("node1", state{MigrationUID: "old", Completed: true}), ""},
		"moves again":        {nil, on("node1", state{MigrationUID: "next"}), ""},
		"the guest is gone":  {list(moved), nil, ""},
	} {
		m := made(func(*v1.VirtualMachineInstanceMigration) {})
		cancelled := &Cancelled{target: Target{Namespace: "ns", Name: "vm"}, migration: &m}
		got, err := cancelled.Wait(t.Context(), &after{recorder{migrations: c.migrations}, c.vmis})
		var late *TooLateError
		if errors.As(err, &late) != (c.late != "") || (err != nil) != (c.late != "") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.late != "" && err.Error() != "migrate-cancel VM ns/vm: it came too late: the guest has moved and runs on "+
			c.late {
			t.Errorf("%s: %v", name, err)
		}
		if c.vmis != nil && got.VMI.Status.NodeName != c.vmis[0].Status.NodeName {
			t.Errorf("%s: %+v", name, got.VMI)
		}
	}
}
