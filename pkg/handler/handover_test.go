package handler

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

func (l *fakeLauncher) PrepareMigrationTarget(context.Context, *launcherpb.PrepareMigrationTargetRequest,
) (*launcherpb.PrepareMigrationTargetResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &launcherpb.PrepareMigrationTargetResponse{State: l.state}, nil
}

func (l *fakeLauncher) TakeOver(context.Context, *launcherpb.TakeOverRequest) (*launcherpb.TakeOverResponse, error) {
	l.lifecycle(launcherpb.Lifecycle_LIFECYCLE_RUNNING, "unpaused")
	return &launcherpb.TakeOverResponse{}, nil
}

const otherUID = types.UID("b1c5a2de-7a33-4b9c-8c0f-3a4f0f8d2b22")

// otherPod is the pod on the other node of a migration.
func otherPod(phase corev1.PodPhase, lastWord string) *corev1.Pod {
	pod := newPod()
	pod.Name, pod.UID, pod.Spec.NodeName, pod.Status.Phase = "other", otherUID, "node2", phase
	if lastWord != "" {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: names.ContainerCompute, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: lastWord},
			}},
		}
	}
	return pod
}

// migratingVMI moves between this node and node2.
func migratingVMI(from, fromPod, to, toPod string) *v1.VirtualMachineInstance {
	vmi := newVMI()
	vmi.Labels = map[string]string{v1.NodeNameLabel: from, v1.MigrationTargetNodeNameLabel: to}
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, from
	vmi.Status.ActivePods = map[types.UID]string{podUID: nodeName, otherUID: "node2"}
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: "m", SourceNode: from, SourcePod: fromPod, TargetNode: to, TargetPod: toPod,
		TargetNodeAddress: "10.0.0.1",
	}
	return vmi
}

// A guest that was received is started by virt-handler when the launchers did not reach each other, and only if the one
// it comes from says that it has let it go.
func TestTakeOver(t *testing.T) {
	w := newWorld(t, migratingVMI("node2", "other", nodeName, newPod().Name), newPod(), otherPod(corev1.PodRunning, ""))
	w.startLauncher()
	h := w.startHandler()
	w.eventually("the launcher is prepared", func() bool {
		run, err := h.OpenIncoming("m", "node2", "")
		if err != nil {
			return false
		}
		return run.Close() == nil
	})
	// Another node's virt-handler, which is none of the migration's, gets nowhere.
	for _, from := range []string{"node3", nodeName, ""} {
		if run, err := h.OpenIncoming("m", from, ""); err == nil {
			t.Errorf("node %q sends a guest from node2", from)
			_ = run.Close()
		}
	}
	w.launcher.set(func(s *launcherpb.GuestState) { s.Arrived = true })
	advance := func() {
		w.mu.Lock()
		w.now = w.now.Add(2 * takeOverPatience)
		w.mu.Unlock()
		for range 3 {
			h.kick()
		}
		w.eventually("the queue is empty", func() bool { return len(h.queue) == 0 })
	}
	w.eventually("the arrival is seen", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.sessions[vmiKey].observation().ReceivedAt.IsZero()
	})
	advance()
	if node := w.vmi().Status.NodeName; node != "node2" {
		t.Fatalf("taken over from a launcher that has said nothing: it is on %s", node)
	}
	source := otherPod(corev1.PodSucceeded, `{"lifecycle":"LIFECYCLE_MIGRATED","reason":"migrated"}`)
	w.must(w.client.Status().Update(context.Background(), source))
	advance()
	w.eventually("the guest is taken over", func() bool {
		h.kick()
		return w.vmi().Status.NodeName == nodeName
	})
	if ms := w.vmi().Status.MigrationState; !ms.Completed || ms.Failed {
		t.Errorf("migrationState %+v", ms)
	}
}

// A guest that has left and is not taken over, because what it went to has ended, is lost, and that is said.
func TestLostOnTheWay(t *testing.T) {
	w := newWorld(t, migratingVMI(nodeName, newPod().Name, "node2", "other"), newPod(), otherPod(corev1.PodRunning, ""))
	w.startLauncher()
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_RUNNING, "booted")
	h := w.startHandler()
	w.eventually("the launcher is followed", func() bool { _, _, err := h.Launcher(vmiKey); return err == nil })
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_MIGRATED, "migrated")
	w.eventually("it has left", func() bool {
		return errors.Is(context.Cause(h.Guest(vmiKey)), streams.ErrMoved)
	})
	for range 3 {
		h.kick()
	}
	w.eventually("the queue is empty", func() bool { return len(h.queue) == 0 })
	if phase := w.vmi().Status.Phase; phase != v1.Running {
		t.Fatalf("phase %s while the other pod runs", phase)
	}
	w.must(w.client.Status().Update(context.Background(), otherPod(corev1.PodFailed, "")))
	h.kick()
	w.eventuallyPhase(v1.Failed)
}
