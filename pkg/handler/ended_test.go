package handler

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A virt-handler that starts and finds a pod removed says that its guest has ended when no process of it is left, not
// before: the VM starts anew from the same disk.
func TestEndIsSaidWhenNoProcessIsLeft(t *testing.T) {
	vmi := newVMI()
	vmi.Status.Phase = v1.Running
	w := newWorld(t, vmi) // the pod was deleted with force while virt-handler was down, and its QEMU runs
	h := w.startHandler()
	look := func() {
		for range 3 {
			h.kick()
		}
		w.eventually("the queue is empty", func() bool { return len(h.queue) == 0 })
	}
	look()
	if phase := w.vmi().Status.Phase; phase != v1.Running {
		t.Fatalf("phase %s while a process of the pod is there", phase)
	}
	w.must(os.RemoveAll(w.proc))
	h.kick()
	w.eventuallyPhase(v1.Failed)
}

// So with the pod to which a guest was moving: it stays in the VMI's active pods as long as a process of it is there.
func TestRemovedTargetIsReleased(t *testing.T) {
	vmi := migratingVMI("node2", "other", nodeName, newPod().Name)
	begun := metav1.NewTime(newWorld(t).clock())
	vmi.Status.MigrationState.StartTimestamp = &begun
	w := newWorld(t, vmi, otherPod(corev1.PodSucceeded, `{"lifecycle":"LIFECYCLE_MIGRATED"}`))
	h := w.startHandler()
	for range 3 {
		h.kick()
	}
	w.eventually("the queue is empty", func() bool { return len(h.queue) == 0 })
	if pods := w.vmi().Status.ActivePods; len(pods) != 2 {
		t.Fatalf("active pods %v while a process of the target is there", pods)
	}
	w.must(os.RemoveAll(w.proc))
	w.eventually("the target is released", func() bool {
		h.kick()
		pods := w.vmi().Status.ActivePods
		_, source := pods[otherUID]
		return len(pods) == 1 && source
	})
}
