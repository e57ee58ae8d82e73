package handler

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// A guest that was handed over stands still, and that is said, until its target is known to have ended. It goes on if
// it never ran there, and is lost if it may have.
func TestTargetEndsInHandoff(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*world)
		want v1.VirtualMachineInstancePhase
	}{
		"never ran": {
			func(w *world) { w.endOther(`{"lifecycle":"LIFECYCLE_CRASHED","reason":"not started"}`) }, v1.Running,
		},
		"may have run": {func(w *world) { w.endOther("") }, v1.Failed},
		"removed, and its node has confirmed": {func(w *world) {
			w.must(w.client.Delete(context.Background(), otherPod(corev1.PodRunning, "")))
			vmi := w.vmi()
			vmi.Status.ActivePods = map[types.UID]string{podUID: nodeName}
			w.must(w.client.Status().Update(context.Background(), vmi))
		}, v1.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, migratingVMI(nodeName, newPod().Name, "node2", "other"), newPod(),
				otherPod(corev1.PodRunning, ""))
			w.startLauncher()
			w.launcher.set(func(s *launcherpb.GuestState) {
				s.Lifecycle, s.Reason = launcherpb.Lifecycle_LIFECYCLE_PAUSED, names.ReasonHandoff
				s.Migration = &launcherpb.Migration{Uid: "m", Phase: launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING}
			})
			h := w.startHandler()
			paused := func() bool {
				return condition(w.vmi(), v1.VirtualMachineInstancePaused).Reason == names.ReasonPausedToMove
			}
			w.eventually("it shows as paused", paused)
			for range 3 {
				h.kick()
			}
			w.eventually("the queue is empty", func() bool { return len(h.queue) == 0 })
			if !paused() || w.vmi().Status.Phase != v1.Running {
				t.Fatalf("while the target's pod runs: %+v", w.vmi().Status)
			}
			c.end(w)
			w.eventually("what follows", func() bool {
				h.kick()
				vmi := w.vmi()
				return vmi.Status.Phase == c.want && !paused()
			})
		})
	}
}

// That the target's pod was removed says nothing.
func TestTargetRemovedInHandoff(t *testing.T) {
	w := newWorld(t, migratingVMI(nodeName, newPod().Name, "node2", "other"), newPod())
	w.startLauncher()
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_PAUSED, names.ReasonHandoff)
	h := w.startHandler()
	w.eventually("it shows as paused", func() bool {
		return condition(w.vmi(), v1.VirtualMachineInstancePaused).Reason == names.ReasonPausedToMove
	})
	for range 3 {
		h.kick()
	}
	w.eventually("the queue is empty", func() bool { return len(h.queue) == 0 })
	if vmi := w.vmi(); vmi.Status.Phase != v1.Running {
		t.Errorf("phase %s", vmi.Status.Phase)
	}
}

// endOther ends the pod on the other node.
func (w *world) endOther(lastWord string) {
	w.t.Helper()
	pod := otherPod(corev1.PodFailed, lastWord)
	if lastWord == "" {
		pod.Status.ContainerStatuses = nil
	}
	w.must(w.client.Status().Update(context.Background(), pod))
}
