package restorecontroller

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

func (w *world) dataVolume(name string) *cdiv1.DataVolume {
	w.Helper()
	dv, err := frame.Found(w.Context(), w.client, "ns", name, &cdiv1.DataVolume{})
	w.must(err)
	return dv
}

// finished works on the restore until it is complete, and is killed after each write.
func (w *world) finished() {
	w.Helper()
	w.complete(func() {})
}

// A restore to new claims deletes the DataVolumes of the old VM's templates and the claim of its state, but for those
// that another VM or a VMI uses. Its status lists what it has deleted, and an event names the rest.
func TestOldClaimsInUse(t *testing.T) {
	const state = vmstate.Prefix + "-vm-xxxxx"
	for name, tc := range map[string]struct {
		other       client.Object
		root, state bool
		says        string
	}{
		"nobody":             {userOf("vm", "beta", "other"), false, false, ""},
		"a VM":               {userOf("vm", "beta", "root"), true, false, "root, whose PVC is used by VM beta"},
		"a VMI":              {userOf("vmi", "probe", "root"), true, false, "used by vmi/probe"},
		"a pod":              {userOf("pod", "backup", "root"), false, false, ""},
		"a VM, of the state": {userOf("vm", "beta", state), false, true, "PVC " + state + ", which is used by VM beta"},
	} {
		t.Run(name, func(t *testing.T) {
			vm, objects := source(true)
			w := newWorld(t, append(objects, vm, tc.other, restoreOf("vm", nil))...)
			w.cdi = true
			w.finished()
			if there := w.dataVolume("root") != nil; there != tc.root {
				t.Errorf("after %v: DataVolume root is there: %t", w.writes, there)
			}
			if there := w.claim(state) != nil; there != tc.state {
				t.Errorf("after %v: the state's claim is there: %t", w.writes, there)
			}
			r := w.restore()
			if says := strings.Join(r.Status.DeletedDataVolumes, " "); (says == "root") == tc.root {
				t.Errorf("deletedDataVolumes are %q", says)
			}
			said := false
			for _, event := range w.events {
				said = said || strings.Contains(event, reasonNotDeleted) && strings.Contains(event, tc.says)
			}
			if said != (tc.says != "") {
				t.Errorf("events %q", w.events)
			}
		})
	}
}

// The old claims of a VM are not given back to it while another VM or a VMI has one of them. Nothing is held or changed
// until they are free.
func TestUndoOfTakenClaims(t *testing.T) {
	for name, other := range map[string]client.Object{
		"a VM": userOf("vm", "beta", "data"), "a VMI": userOf("vmi", "probe", "root"),
	} {
		t.Run(name, func(t *testing.T) {
			vm, objects := source(false)
			w := newWorld(t, append(objects, vm, other)...)
			w.ask("r", "")
			w.finished()
			w.ask("u", "r")
			w.run(100)
			if says := reasonOf(w.restore()); !strings.HasPrefix(says,
				"restore r would be taken back to claims that are in use: PVC ") {
				t.Errorf("it says %q", says)
			}
			if !w.whole() || w.vm("vm").Status.RestoreInProgress != nil {
				t.Errorf("after %v: VM %+v", w.writes, w.vm("vm"))
			}
			w.must(w.client.Delete(t.Context(), other))
			w.finished()
			if w.whole() {
				t.Errorf("after %v: the VM is the restored one", w.writes)
			}
		})
	}
}

// What the VM shared before is given back although others use it, and so is what it has still.
func TestUndoOfSharedClaims(t *testing.T) {
	vm, objects := source(false)
	guest := &vm.Spec.Template.Spec
	guest.Domain.Devices.Disks = []v1.Disk{{Name: "data", Shareable: new(true)}}
	w := newWorld(t, append(objects, vm, userOf("vm", "beta", "data"))...)
	w.ask("r", "")
	w.finished()
	w.ask("u", "r")
	w.finished()
	if w.whole() {
		t.Errorf("after %v: the VM is the restored one", w.writes)
	}
}
