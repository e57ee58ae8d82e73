package clonecontroller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/clones"
)

func (w *world) snapshots() []v1beta1.VirtualMachineSnapshot {
	return listed(w, &v1beta1.VirtualMachineSnapshotList{},
		func(l *v1beta1.VirtualMachineSnapshotList) []v1beta1.VirtualMachineSnapshot { return l.Items })
}

func (w *world) restores() []v1beta1.VirtualMachineRestore {
	return listed(w, &v1beta1.VirtualMachineRestoreList{},
		func(l *v1beta1.VirtualMachineRestoreList) []v1beta1.VirtualMachineRestore { return l.Items })
}

func (w *world) claims() []corev1.PersistentVolumeClaim {
	return listed(w, &corev1.PersistentVolumeClaimList{},
		func(l *corev1.PersistentVolumeClaimList) []corev1.PersistentVolumeClaim { return l.Items })
}

func (w *world) machines() []v1.VirtualMachine {
	return listed(w, &v1.VirtualMachineList{}, func(l *v1.VirtualMachineList) []v1.VirtualMachine { return l.Items })
}

func (w *world) volumeSnapshots() []snapshotsv1.VolumeSnapshot {
	return listed(w, &snapshotsv1.VolumeSnapshotList{},
		func(l *snapshotsv1.VolumeSnapshotList) []snapshotsv1.VolumeSnapshot { return l.Items })
}

func (w *world) bindings() []snapshotsv1.VolumeSnapshotContent {
	return listed(w, &snapshotsv1.VolumeSnapshotContentList{},
		func(l *snapshotsv1.VolumeSnapshotContentList) []snapshotsv1.VolumeSnapshotContent { return l.Items })
}

func (w *world) contents() []v1beta1.VirtualMachineSnapshotContent {
	return listed(w, &v1beta1.VirtualMachineSnapshotContentList{},
		func(l *v1beta1.VirtualMachineSnapshotContentList) []v1beta1.VirtualMachineSnapshotContent {
			return l.Items
		})
}

// bindCopies plays the snapshot controller for VolumeSnapshots that name their contents.
func (w *world) bindCopies() {
	w.Helper()
	for _, snapshot := range w.volumeSnapshots() {
		for _, content := range w.bindings() {
			ref, name := content.Spec.VolumeSnapshotRef, snapshot.Spec.Source.VolumeSnapshotContentName
			if name == nil || *name != content.Name || snapshot.Status != nil || ref.UID != snapshot.UID ||
				ref.Namespace != snapshot.Namespace || ref.Name != snapshot.Name {
				continue
			}
			snapshot.Status = &snapshotsv1.VolumeSnapshotStatus{
				ReadyToUse: new(true), BoundVolumeSnapshotContentName: name,
			}
			w.must(w.client.Status().Update(w.Context(), &snapshot))
		}
	}
}

// collectCopies deletes what belongs to a VirtualMachineSnapshot that is gone.
func (w *world) collectCopies() {
	w.Helper()
	there := map[string]bool{}
	for _, s := range w.snapshots() {
		there[string(s.UID)] = true
	}
	gone := func(o client.Object) {
		if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == kindSnapshot && !there[string(owner.UID)] {
			w.must(w.client.Delete(w.Context(), o))
		}
	}
	for _, o := range w.volumeSnapshots() {
		gone(&o)
	}
	for _, o := range w.contents() {
		gone(&o)
	}
}

// checkCopies finds copies that a clone has left behind, and data of the source that went with them.
func (w *world) checkCopies(n int) {
	w.Helper()
	w.collectCopies()
	for _, o := range w.bindings() {
		if o.Labels[clones.UIDLabel] != "" {
			w.Fatalf("after %d writes VolumeSnapshotContent %s is left of %v", n, o.Name, w.writes)
		}
	}
	for _, o := range w.volumeSnapshots() {
		if metav1.GetControllerOf(&o) != nil {
			w.Fatalf("after %d writes VolumeSnapshot %s/%s is left of %v", n, o.Namespace, o.Name, w.writes)
		}
	}
}

// crossing is a world with VM src/vm, and a clone of it in namespace ns.
func crossing(t *testing.T, pin string, more ...client.Object) *world {
	t.Helper()
	vm, claim := source("src")
	c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "c", UID: "c-uid",
		Annotations: map[string]string{clones.NamespaceAnnotation: "src", clones.UIDAnnotation: pin},
	}}
	c.Spec.Source = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: kindMachine, Name: "vm"}
	c.Spec.Target = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: kindMachine, Name: "copy"}
	return newWorld(t, append(more, vm, claim, c)...)
}

// finish has reconcilers work until there is nothing more to do.
func (w *world) finish() *clonev1beta1.VirtualMachineClone {
	w.Helper()
	for before := -1; len(w.writes) > before; w.settle() {
		before = len(w.writes)
		w.run(1)
	}
	return w.clone()
}

// What others have made under the names of a clone's objects is not taken for them, whatever it says; nor is a source
// that is not the one that was admitted. The clone fails, and leaves what is not its own.
func TestForeignObjects(t *testing.T) {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: "foreign", Labels: map[string]string{clones.UIDLabel: "another"},
		}
	}
	of := func(vm string) v1beta1.VirtualMachineSnapshotSpec {
		return v1beta1.VirtualMachineSnapshotSpec{Source: corev1.TypedLocalObjectReference{Kind: kindMachine, Name: vm}}
	}
	named := "clone-c-uid-0"
	forged := meta("src", "tmp-snapshot-c-uid")
	forged.Labels[clones.UIDLabel] = "c-uid"
	for name, tc := range map[string]struct {
		pin     string
		foreign client.Object
		says    string
	}{
		"no admission":             {"", nil, "virt-api has not admitted the clone"},
		"the source was made anew": {"older", nil, "VirtualMachine src/vm is not the one that the clone was made for"},
		"a VolumeSnapshot": {
			"vm-uid",
			&snapshotsv1.VolumeSnapshot{
				ObjectMeta: meta("ns", named),
				Spec: snapshotsv1.VolumeSnapshotSpec{
					Source: snapshotsv1.VolumeSnapshotSource{VolumeSnapshotContentName: &named},
				},
			},
			"VolumeSnapshot ns/" + named + " exists",
		},
		"a VolumeSnapshotContent": {
			"vm-uid", &snapshotsv1.VolumeSnapshotContent{ObjectMeta: meta("", named)},
			"VolumeSnapshotContent " + named + " exists",
		},
		"a snapshot here": {
			"vm-uid", &v1beta1.VirtualMachineSnapshot{ObjectMeta: meta("ns", "tmp-snapshot-c-uid"), Spec: of("vm")},
			"VirtualMachineSnapshot ns/tmp-snapshot-c-uid exists",
		},
		"a content here": {
			"vm-uid", &v1beta1.VirtualMachineSnapshotContent{ObjectMeta: meta("ns", "clone-content-c-uid")},
			"VirtualMachineSnapshotContent ns/clone-content-c-uid exists",
		},
		"a snapshot there": {
			"vm-uid", &v1beta1.VirtualMachineSnapshot{ObjectMeta: meta("src", "tmp-snapshot-c-uid"), Spec: of("vm")},
			"VirtualMachineSnapshot src/tmp-snapshot-c-uid exists",
		},
		"a snapshot of another VM": {
			"vm-uid", &v1beta1.VirtualMachineSnapshot{ObjectMeta: forged, Spec: of("secret")},
			"VirtualMachineSnapshot src/tmp-snapshot-c-uid exists",
		},
		"a snapshot of an older VM": {
			"vm-uid",
			&v1beta1.VirtualMachineSnapshot{
				ObjectMeta: forged, Spec: of("vm"),
				Status: &v1beta1.VirtualMachineSnapshotStatus{
					SourceUID: new(metav1.ObjectMeta{UID: "older"}.UID), ReadyToUse: new(true),
					Phase: v1beta1.Succeeded,
				},
			},
			"snapshot src/tmp-snapshot-c-uid is not of the VM",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var more []client.Object
			if tc.foreign != nil {
				more = append(more, tc.foreign)
			}
			w := crossing(t, tc.pin, more...)
			c := w.finish()
			if c.Status.Phase != clonev1beta1.Failed || !strings.HasPrefix(c.Status.Conditions[0].Message, tc.says) {
				t.Fatalf("after %v it is %s and says %+v, want %q", w.writes, c.Status.Phase, c.Status.Conditions,
					tc.says)
			}
			if slices.Contains(c.Finalizers, clones.Finalizer) || len(w.machines()) != 1 {
				t.Errorf("it has finalizers %v, and there are VMs %v", c.Finalizers, w.machines())
			}
			if tc.foreign == nil || tc.foreign.GetLabels()[clones.UIDLabel] == "c-uid" {
				return
			}
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(tc.foreign), tc.foreign); err != nil {
				t.Errorf("what is not the clone's is gone: %v", err)
			}
		})
	}
}

// A VolumeSnapshot that says to be bound to the content of another one gives nobody that one's data.
func TestForgedBinding(t *testing.T) {
	w := crossing(t, "vm-uid")
	w.run(3) // the snapshot is taken
	w.settle()
	victim := &snapshotsv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}
	victim.Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: "bank", Name: "ledger", UID: "ledger"}
	victim.Status = &snapshotsv1.VolumeSnapshotContentStatus{SnapshotHandle: new("secret")}
	w.must(w.client.Create(t.Context(), victim))
	for _, snapshot := range w.volumeSnapshots() {
		snapshot.Status.BoundVolumeSnapshotContentName = new("victim")
		w.must(w.client.Status().Update(t.Context(), &snapshot))
	}
	c := w.finish()
	if said := c.Status.Conditions[0].Message; !strings.HasPrefix(said,
		"VolumeSnapshotContent victim is not bound to") {
		t.Errorf("after %v it says %q", w.writes, said)
	}
	for _, o := range w.bindings() {
		if h := o.Spec.Source.SnapshotHandle; h != nil {
			t.Errorf("%s has handle %s", o.Name, *h)
		}
	}
}

// The objects of a clone are deleted by others after each of its writes: it succeeds or fails, and leaves nothing.
func TestPartsAreDeleted(t *testing.T) {
	whole := crossing(t, "vm-uid")
	if c := whole.finish(); c.Status.Phase != clonev1beta1.Succeeded {
		t.Fatalf("after %v: %+v", whole.writes, c.Status)
	}
	for what, all := range map[string]func(w *world) []client.Object{
		"snapshots there": func(w *world) (out []client.Object) {
			for _, s := range w.snapshots() {
				if s.Namespace == "src" {
					out = append(out, &s)
				}
			}
			return out
		},
		"snapshots here": func(w *world) (out []client.Object) {
			for _, s := range w.snapshots() {
				if s.Namespace == "ns" {
					out = append(out, &s)
				}
			}
			return out
		},
	} {
		for n := 1; n < len(whole.writes); n++ {
			t.Run(fmt.Sprintf("%s after %d", what, n), func(t *testing.T) {
				t.Parallel()
				w := crossing(t, "vm-uid")
				w.run(n)
				for _, o := range all(w) {
					w.must(w.client.Delete(t.Context(), o))
				}
				w.settle()
				if c := w.finish(); !over(c) || slices.Contains(c.Finalizers, clones.Finalizer) {
					t.Fatalf("after %v it is %+v", w.writes, c)
				}
				w.checkRest(0, n)
			})
		}
	}
}

// A clone deletes its VolumeSnapshotContents also when somebody has deleted one before them, and nobody else's: neither
// what has its label and another name, nor what has its name and another label.
func TestContentsAreFoundOneByOne(t *testing.T) {
	w := crossing(t, "vm-uid")
	for name, label := range map[string]string{
		"clone-c-uid-2": "c-uid", "clone-c-uid-10": "c-uid",
		"clone-c-uid-02": "c-uid", "other-2": "c-uid", "clone-c-uid-3": "d-uid",
	} {
		w.must(w.client.Create(t.Context(), &snapshotsv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{clones.UIDLabel: label},
		}}))
	}
	if c := w.finish(); !over(c) || slices.Contains(c.Finalizers, clones.Finalizer) {
		t.Fatalf("after %v it is %+v", w.writes, c)
	}
	var left []string
	for _, o := range w.bindings() {
		if o.Labels[clones.UIDLabel] != "" {
			left = append(left, o.Name)
		}
	}
	slices.Sort(left)
	if want := []string{"clone-c-uid-02", "clone-c-uid-3", "other-2"}; !slices.Equal(left, want) {
		t.Errorf("after %v there are %v, want %v", w.writes, left, want)
	}
}

// The copy is whole: bound by UID, kept when it is deleted, of the source's driver and handle.
func TestCopyOfVolume(t *testing.T) {
	w := crossing(t, "vm-uid")
	for range 20 {
		w.run(1)
		w.settle()
		for _, o := range w.bindings() {
			if o.Labels[clones.UIDLabel] == "" {
				continue
			}
			var is *snapshotsv1.VolumeSnapshot
			for _, s := range w.volumeSnapshots() {
				if s.Namespace == "ns" {
					is = &s
				}
			}
			if is == nil || o.Spec.VolumeSnapshotRef.UID != is.UID || o.Spec.VolumeSnapshotRef.Namespace != "ns" ||
				o.Spec.DeletionPolicy != snapshotsv1.VolumeSnapshotContentRetain ||
				*o.Spec.Source.SnapshotHandle != "handle" ||
				o.Spec.Driver != "csi.example" {
				t.Errorf("VolumeSnapshotContent %+v for VolumeSnapshot %+v", o, is)
			}
			return
		}
	}
	t.Fatalf("no VolumeSnapshotContent after %v", w.writes)
}

// What the new VM names and is not copied is said, once it is there.
func TestLeft(t *testing.T) {
	vm, _ := source("ns")
	vm.Spec.Template.Spec.Networks = []v1.Network{
		{Name: "lan", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "lan"}}},
	}
	c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	c.Status.Phase = clonev1beta1.CreatingTargetVM
	step := Next(View{Clone: c, Remote: &Remote{}, Target: vm, Now: now})
	const want = "the copy names NetworkAttachmentDefinition lan, which are not copied; " +
		"see that namespace ns has them before the copy is started"
	if len(step.Events) != 2 || step.Events[1].Message != want || step.Status.Conditions[0].Message != want {
		t.Errorf("%+v", step)
	}
}
