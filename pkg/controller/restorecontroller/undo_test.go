package restorecontroller

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// The claims of source's VM, and those that the restore r makes.
var (
	oldClaims = []string{"data", "root", vmstate.Prefix + "-vm-xxxxx"}
	newClaims = []string{"restore-r-uid-data", "restore-r-uid-root", "restore-r-uid-" + vmstate.Prefix + "-vm"}
)

// ask makes a restore that keeps what it replaces, or takes back another, and works on it.
func (w *world) ask(name, undoes string) {
	w.Helper()
	r := restoreOf("vm", nil)
	r.Name, r.UID = name, types.UID(name+"-uid")
	r.Annotations = map[string]string{snapshots.KeepAnnotation: "true"}
	if undoes != "" {
		r.Annotations = map[string]string{snapshots.UndoAnnotation: undoes}
	}
	w.must(w.client.Create(w.Context(), r))
	w.subject = name
}

// complete works on the restore until it is complete, and is killed after each write.
func (w *world) complete(each func()) {
	w.Helper()
	for range 60 {
		if isTrue(completeOf(w.restore())) {
			return
		}
		w.run(1)
		each()
		w.provision()
	}
	w.Fatalf("after %v: %+v", w.writes, w.restore().Status)
}

// whole checks that the VM is the old or the new one, with its claims and its state, and that nothing is deleted.
func (w *world) whole() (isNew bool) {
	w.Helper()
	vm := w.vm("vm")
	isNew = vm.Spec.Template.Spec.Domain.CPU.Cores == 1
	has, state := oldClaims, oldClaims[2]
	if isNew {
		has, state = newClaims, newClaims[2]
	}
	if names := snapshots.ClaimNames(&vm.Spec); !slices.Equal(names, has[:2]) {
		w.Fatalf("after %v: the VM has claims %v, want %v", w.writes, names, has[:2])
	}
	for _, name := range slices.Concat(oldClaims, has) {
		if w.claim(name) == nil {
			w.Fatalf("after %v: claim %s is gone", w.writes, name)
		}
	}
	if vm.Status.RestoreInProgress == nil && w.claim(state).Labels[vmstate.Prefix] != "vm" {
		w.Fatalf("after %v: the VM's state is not on %s", w.writes, state)
	}
	return isNew
}

// kept checks that these claims have the label of a restore, and those none, and no two are the VM's state.
func (w *world) kept(restore string, kept, used []string) {
	w.Helper()
	for _, name := range kept {
		if claim := w.claim(name); claim.Labels[snapshots.KeptLabel] != restore || claim.Labels[vmstate.Prefix] != "" {
			w.Errorf("claim %s has labels %v, want that of %s", name, claim.Labels, restore)
		}
	}
	for _, name := range used {
		if claim := w.claim(name); claim.Labels[snapshots.KeptLabel] != "" {
			w.Errorf("claim %s, which is in use, has labels %v", name, claim.Labels)
		}
	}
}

// A restore that keeps what it replaces is taken back, and that again, and both are killed after each write: at all
// times the VM is whole, and no claim is deleted.
func TestUndo(t *testing.T) {
	for name, withCDI := range map[string]bool{"claims": false, "DataVolumes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vm, objects := source(withCDI)
			w := newWorld(t, append(objects, vm)...)
			w.cdi = withCDI
			each := func() { w.whole() }
			w.ask("r", "")
			w.complete(each)
			if !w.whole() {
				t.Fatal("the VM is the old one")
			}
			w.kept("r", oldClaims, newClaims)
			// Its guest was to go on from memory that is of the new disks.
			resumes := w.vm("vm")
			metav1.SetMetaDataAnnotation(&resumes.ObjectMeta, savedmemory.ResumeAnnotation, "{}")
			w.must(w.client.Update(t.Context(), resumes))
			w.ask("u", "r")
			w.complete(func() {
				if _, resumes := w.vm("vm").Annotations[savedmemory.ResumeAnnotation]; resumes != w.whole() {
					t.Errorf("after %v: the guest goes on from its memory: %t", w.writes, resumes)
				}
			})
			if w.whole() {
				t.Fatalf("the VM is the restored one: %v", w.writes)
			}
			w.kept("u", newClaims, oldClaims)
			if vm := w.vm("vm"); *vm.Spec.RunStrategy != v1.RunStrategyManual || vm.Spec.Instancetype != nil ||
				vm.Status.RestoreInProgress != nil {
				t.Errorf("VM %+v", vm.Spec)
			}
			w.ask("again", "u")
			w.complete(each)
			if !w.whole() {
				t.Fatal("the VM is the old one")
			}
			w.kept("again", oldClaims, newClaims)
		})
	}
}

// One that is deleted after any of its writes leaves a whole VM, which is not held.
func TestUndoDeleted(t *testing.T) {
	for n := 1; ; n++ {
		vm, objects := source(false)
		w := newWorld(t, append(objects, vm)...)
		w.ask("r", "")
		w.complete(func() {})
		w.ask("u", "r")
		before := len(w.writes)
		w.run(n)
		if len(w.writes)-before < n {
			if n < 6 {
				t.Errorf("%d writes in all: %v", n, w.writes[before:])
			}
			return
		}
		w.must(client.IgnoreNotFound(w.client.Delete(w.Context(), w.restore())))
		w.run(100)
		w.whole()
		if w.restore() != nil || w.vm("vm").Status.RestoreInProgress != nil {
			t.Fatalf("deleted after %v: %+v", w.writes[before:], w.restore())
		}
	}
}

// What cannot be taken back says why, and changes nothing.
func TestIrreversible(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"another restore": {func(w *world) {
			vm := w.vm("vm")
			vm.Annotations[LastAnnotation] = "other-1"
			w.must(w.client.Update(w.Context(), vm))
		}, "restore r is not the last one of VM vm"},
		"gone": {func(w *world) {
			r := &v1beta1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}}
			w.must(w.client.Get(w.Context(), client.ObjectKeyFromObject(r), r))
			r.Finalizers = nil
			w.must(w.client.Update(w.Context(), r))
			w.must(w.client.Delete(w.Context(), r))
		}, "restore r does not exist"},
		"a claim is gone": {
			func(w *world) { w.must(w.client.Delete(w.Context(), w.claim("data"))) },
			"PVC data, which restore r replaced, is gone",
		},
		// The exploit: who may write a VM's annotations names a revision that virt-controller did not make.
		"a revision of another's making": {func(w *world) {
			mine := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}}
			mine.Data.Raw = []byte(`{"uid":"vm-uid","spec":{"template":{"spec":{"domain":{"devices":{}}}}}}`)
			w.must(w.client.Create(w.Context(), mine))
			vm := w.vm("vm")
			vm.Annotations[snapshots.FormerAnnotation] = "mine"
			w.must(w.client.Update(w.Context(), vm))
		}, "restore r has not kept what it replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			vm, objects := source(false)
			w := newWorld(t, append(objects, vm)...)
			w.ask("r", "")
			w.complete(func() {})
			tc.change(w)
			w.ask("u", "r")
			w.run(100)
			said := conditions.Find(w.restore().Status.Conditions, v1beta1.ConditionReady)
			if said == nil || said.Status != corev1.ConditionFalse || !strings.HasPrefix(said.Reason, tc.want) {
				t.Errorf("says %+v", said)
			}
			failed := conditions.Find(w.restore().Status.Conditions, v1beta1.ConditionFailure) != nil
			if never := strings.HasSuffix(tc.want, "is gone"); failed != never {
				t.Errorf("failed %t, want %t", failed, never)
			}
			if vm := w.vm("vm"); vm.Spec.Template.Spec.Domain.CPU.Cores != 1 || vm.Status.RestoreInProgress != nil {
				t.Errorf("VM %+v, %+v", vm.Spec, vm.Status)
			}
		})
	}
}

// A claim that goes while the undo has the VM already ends the undo as well, and the VM is let go.
func TestIrreversibleWhileHeld(t *testing.T) {
	vm, objects := source(false)
	w := newWorld(t, append(objects, vm)...)
	w.ask("r", "")
	w.complete(func() {})
	w.ask("u", "r")
	for n := 0; !snapshots.Restoring(w.vm("vm")); n++ {
		if n > 20 {
			t.Fatal("the undo does not begin")
		}
		w.run(1)
	}
	w.must(w.client.Delete(w.Context(), w.claim("data")))
	w.run(100)
	if conditions.Find(w.restore().Status.Conditions, v1beta1.ConditionFailure) == nil {
		t.Errorf("says %+v", w.restore().Status.Conditions)
	}
	if vm := w.vm("vm"); vm.Spec.Template.Spec.Domain.CPU.Cores != 1 || vm.Status.RestoreInProgress != nil {
		t.Errorf("VM %+v, %+v", vm.Spec, vm.Status)
	}
}
