package page

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// TestPagesSpareAnother: a machine that was made anew under its name while the page of its volumes is open is another:
// what was marked and typed is not for it.
func TestPagesSpareAnother(t *testing.T) {
	w := &World{
		Machines: store.NewMachines(func() {}), Theme: theme.New(theme.Options{}), Actions: allowing{}, Now: time.Now,
	}
	is := func(uid types.UID, revision string) {
		w.Machines.Load([]v1.VirtualMachine{{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "web", UID: uid, ResourceVersion: revision,
		}}}, nil)
	}
	key := store.Key{Namespace: "prod", Name: "web"}
	is("1", "1")
	unplug, plug := NewUnplug(w, w.Machines.Get(key)).(*unplugging), NewPlug(w, w.Machines.Get(key))
	plug.inputs[plugClaim].SetValue("data")
	for _, step := range []struct {
		uid            types.UID
		revision       string
		unplugs, plugs string
	}{
		{"1", "2", "", ""},
		{"2", "3", "the machine has been deleted", "the machine has been deleted"},
	} {
		is(step.uid, step.revision)
		unplug.attachments = []attachment{{Name: "data"}}
		unplug.Refresh()
		plug.Refresh()
		if got := unplug.refusal(); got != step.unplugs {
			t.Errorf("of %s unplug says %q", step.uid, got)
		}
		if got := plug.refusal(); got != step.plugs {
			t.Errorf("of %s plug says %q", step.uid, got)
		}
		for _, m := range []*store.Machine{unplug.machine, plug.row} {
			if target(m).UID != "1" || m.Revision != "2" {
				t.Errorf("of %s the page has %+v", step.uid, m)
			}
		}
	}
}

// TestPagesKeepTheirMachine: the page of an instance whose VM is listed later is that of the VM from then on, and not
// that of a VM that is made anew.
func TestPagesKeepTheirMachine(t *testing.T) {
	w := &World{
		Machines: store.NewMachines(func() {}), Theme: theme.New(theme.Options{}), Actions: allowing{}, Now: time.Now,
	}
	vm := func(uid types.UID) v1.VirtualMachine {
		return v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: uid}}
	}
	first, second := vm("vm-1"), vm("vm-2")
	vmi := func(uid types.UID, of *v1.VirtualMachine) v1.VirtualMachineInstance {
		return v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "web", UID: uid,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(of, v1.VirtualMachineGroupVersionKind),
			},
		}, Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}
	}
	w.Machines.Load(nil, []v1.VirtualMachineInstance{vmi("vmi-1", &first)})
	plug := NewPlug(w, w.Machines.Get(store.Key{Namespace: "prod", Name: "web"}))
	plug.inputs[plugClaim].SetValue("data")
	for _, step := range []struct {
		vm   *v1.VirtualMachine
		vmi  types.UID
		says string
	}{
		{&first, "vmi-1", ""},
		{&first, "vmi-1b", ""}, // its guest has started again
		{&second, "vmi-2", "the machine has been deleted"},
	} {
		w.Machines.Load([]v1.VirtualMachine{*step.vm}, []v1.VirtualMachineInstance{vmi(step.vmi, step.vm)})
		plug.Refresh()
		if got, of := plug.refusal(), target(plug.row); got != step.says || of.UID != "vm-1" || of.Instance {
			t.Errorf("%s with %s: %q of %+v", step.vm.UID, step.vmi, got, of)
		}
	}
}
