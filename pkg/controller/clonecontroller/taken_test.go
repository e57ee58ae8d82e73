package clonecontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
)

// The name of the new VM is given to another one at any moment: the clone fails, and takes away what it has made, or
// has its VM by then.
func TestTaken(t *testing.T) {
	failures := 0
	for n := 1; ; n++ {
		vm, claim := source("ns")
		c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c-uid"}}
		c.Spec.Source = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: kindMachine, Name: "vm"}
		c.Spec.Target = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: kindMachine, Name: "copy"}
		w := newWorld(t, vm, claim, c)
		w.run(n)
		err := w.client.Create(t.Context(),
			&v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "copy", UID: "other"}})
		w.settle()
		if apierrors.IsAlreadyExists(err) {
			break
		}
		w.must(err)
		w.run(100)
		w.settle()
		if c := w.clone(); c.Status.Phase != clonev1beta1.Failed ||
			!strings.HasPrefix(c.Status.Conditions[0].Message, "VM ns/copy exists") {
			t.Fatalf("after %d writes: %+v", n, c.Status)
		}
		w.checkRest(0, n)
		failures++
	}
	if failures < 4 {
		t.Errorf("the VM was there after %d writes", failures)
	}
}
