package clonecontroller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
)

// The events of a clone have KubeVirt's names, and come in its order, once each.
func TestEvents(t *testing.T) {
	vm, claim := source("ns")
	c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c-uid"}}
	c.Spec.Source = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: kindMachine, Name: "vm"}
	c.Spec.Target = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: kindMachine, Name: "copy"}
	w := newWorld(t, vm, claim, c)
	for before := -1; len(w.writes) > before; w.settle() {
		before = len(w.writes)
		w.run(1000)
	}
	want := []string{
		"Normal SnapshotCreated", "Normal SnapshotReady", "Normal RestoreCreated", "Normal RestoreReady",
		"Normal TargetVMCreated", "Normal PVCBound",
	}
	if !slices.Equal(w.events, want) {
		t.Errorf("%q, want %q", w.events, want)
	}
	gone := c.DeepCopy()
	gone.Spec.Source.Name = "none"
	w = newWorld(t, gone)
	w.run(1000)
	if !slices.Equal(w.events, []string{"Warning SourceDoesNotExist"}) {
		t.Errorf("of no source: %q", w.events)
	}
}
