package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

func TestGuestStarts(t *testing.T) {
	w := newWorld(t)
	h := w.startHandler()
	w.startLauncher() // after the session has begun to wait for it
	vmi := w.eventuallyPhase(v1.Running)
	if c := condition(vmi, v1.VirtualMachineInstanceReady); c.Status != corev1.ConditionTrue {
		t.Errorf("Ready is %+v", c)
	}
	if c := condition(vmi, names.ConditionSoftwareEmulation); c.Status != corev1.ConditionTrue {
		t.Errorf("SoftwareEmulation is %+v", c)
	}
	if vmi.Status.Machine == nil || vmi.Status.LauncherContainerImageVersion != "launcher:1" ||
		len(vmi.Status.VolumeStatus) != 1 {
		t.Errorf("status is %+v", vmi.Status)
	}
	w.wantEvents("Created", "Started")
	w.launcher.mu.Lock()
	var sent v1.VirtualMachineInstance
	err := json.Unmarshal(w.launcher.starts[0].VmiJson, &sent)
	w.launcher.mu.Unlock()
	if err != nil || sent.UID != vmiUID {
		t.Errorf("Start got VMI %s, %v", sent.UID, err)
	}
	if n := w.statusWrites(); n != 1 {
		t.Errorf("%d writes until Running, want 1", n)
	}
	if _, _, err := h.Launcher(vmiKey); err != nil {
		t.Errorf("the launcher is not to be had: %v", err)
	}
}

func TestNothingIsWrittenTwice(t *testing.T) {
	w := newWorld(t)
	w.startLauncher()
	h := w.startHandler()
	w.eventuallyPhase(v1.Running)
	before := w.statusWrites()
	for range 5 {
		h.kick()
	}
	w.eventually("the queue is empty", func() bool { return len(h.queue) == 0 })
	if n := w.statusWrites() - before; n != 0 {
		t.Errorf("%d writes without a change", n)
	}
}

func TestHandlerRestarts(t *testing.T) {
	w := newWorld(t)
	w.startLauncher()
	first := w.startHandler()
	w.eventuallyPhase(v1.Running)
	w.wantEvents("Created", "Started")
	first.stop()
	writes := w.statusWrites()

	second := w.startHandler()
	w.eventually("the launcher is attached to again", func() bool {
		_, _, err := second.Launcher(vmiKey)
		starts, _ := w.launcher.counts()
		return err == nil && starts == 2
	})
	w.launcher.set(func(s *launcherpb.GuestState) { s.AgentConnected = true })
	w.eventually("news arrives", func() bool {
		return condition(w.vmi(), v1.VirtualMachineInstanceAgentConnected).Status == corev1.ConditionTrue
	})
	if n := w.statusWrites() - writes; n != 1 {
		t.Errorf("the restart and one piece of news cost %d writes, want 1", n)
	}
	w.noEvents()
}

func TestStartIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	locked := grpcstatus.Error(codes.FailedPrecondition, `volume "root" is in use`)
	w.startLauncher(locked, locked)
	w.startHandler()
	w.eventually("Synchronized is false", func() bool {
		c := condition(w.vmi(), v1.VirtualMachineInstanceSynchronized)
		return c.Status == corev1.ConditionFalse && c.Message == `volume "root" is in use`
	})
	vmi := w.eventuallyPhase(v1.Running)
	if c := condition(vmi, v1.VirtualMachineInstanceSynchronized); c.Type != "" {
		t.Errorf("after the success there is still %+v", c)
	}
	w.wantEvents("SyncFailed", "Created", "Started")
}

func TestInvalidSpecFails(t *testing.T) {
	w := newWorld(t)
	w.startLauncher(grpcstatus.Error(codes.InvalidArgument, "no such machine type"))
	w.startHandler()
	vmi := w.eventuallyPhase(v1.Failed)
	if vmi.Status.Reason != vmistatus.ReasonCannotStart ||
		!strings.Contains(condition(vmi, v1.VirtualMachineInstanceSynchronized).Message, "machine type") {
		t.Errorf("status is %+v", vmi.Status)
	}
	w.eventually("the launcher is let go", func() bool { _, s := w.launcher.counts(); return len(s) == 1 && s[0] == 0 })
	w.wantEvents("SyncFailed")
}

func TestGuestEnds(t *testing.T) {
	for _, test := range []struct {
		end    launcherpb.Lifecycle
		reason string
		want   v1.VirtualMachineInstancePhase
	}{
		{launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, "shutdown", v1.Succeeded},
		{launcherpb.Lifecycle_LIFECYCLE_DESTROYED, "destroyed", v1.Succeeded},
		{launcherpb.Lifecycle_LIFECYCLE_CRASHED, "panicked", v1.Failed},
	} {
		t.Run(test.reason, func(t *testing.T) {
			w := newWorld(t)
			w.startLauncher()
			w.startHandler()
			w.eventuallyPhase(v1.Running)
			w.launcher.lifecycle(test.end, test.reason)
			w.eventuallyPhase(test.want) // the pod still runs
			w.wantEvents("Started", "Stopped")
		})
	}
}

func TestPause(t *testing.T) {
	w := newWorld(t)
	w.startLauncher()
	w.startHandler()
	w.eventuallyPhase(v1.Running)
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_PAUSED, "user")
	w.eventually("paused", func() bool {
		vmi := w.vmi()
		return condition(vmi, v1.VirtualMachineInstancePaused).Reason == vmistatus.ReasonPausedByUser &&
			condition(vmi, v1.VirtualMachineInstanceReady).Status == corev1.ConditionFalse
	})
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_RUNNING, "unpaused")
	w.eventually("unpaused", func() bool {
		vmi := w.vmi()
		return condition(vmi, v1.VirtualMachineInstancePaused).Type == "" &&
			condition(vmi, v1.VirtualMachineInstanceReady).Status == corev1.ConditionTrue
	})
	w.wantEvents("Started", "Paused", "Unpaused")
}

// deleteVMI deletes the VMI, at the time that virt-handler's clock shows then: nothing is done about it before.
func (w *world) deleteVMI() time.Time {
	w.t.Helper()
	vmi := w.vmi()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.must(w.client.Delete(context.Background(), vmi))
	w.now = w.vmi().DeletionTimestamp.Time
	return w.now
}

func TestDeletionShutsDown(t *testing.T) {
	vmi := newVMI()
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(60))
	w := newWorld(t, vmi, newPod())
	w.startLauncher()
	h := w.startHandler()
	w.eventuallyPhase(v1.Running)
	w.deleteVMI()
	h.kick()
	w.eventually("shutdown", func() bool { _, s := w.launcher.counts(); return len(s) == 1 && s[0] == 60*time.Second })
	h.kick()
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_SHUTTING_DOWN, "")
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, "shutdown")
	w.eventuallyPhase(v1.Succeeded)
	if _, s := w.launcher.counts(); len(s) != 1 {
		t.Errorf("Shutdown was called %d times", len(s))
	}
	w.wantEvents("Started", "ShuttingDown", "Stopped", "Deleted")
}

func TestDeletionBeforeStart(t *testing.T) {
	w := newWorld(t)
	w.deleteVMI()
	w.startHandler()
	w.startLauncher()
	w.eventuallyPhase(v1.Succeeded)
	w.eventually("the launcher let go", func() bool { _, shutdowns := w.launcher.counts(); return len(shutdowns) == 1 })
	if starts, _ := w.launcher.counts(); starts != 0 {
		t.Errorf("%d starts of a guest that was not to start", starts)
	}
}

func TestPodEnds(t *testing.T) {
	ended := func(phase corev1.PodPhase, code int32, reason, message string) *corev1.Pod {
		pod := newPod()
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "compute", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message},
		}}}
		return pod
	}
	evicted := newPod()
	evicted.Status.Phase, evicted.Status.Reason, evicted.Status.Message = corev1.PodFailed, "Evicted", "out of disk"
	for _, test := range []struct {
		name   string
		pod    *corev1.Pod
		want   v1.VirtualMachineInstancePhase
		reason string
	}{
		{
			"shut down", ended(corev1.PodSucceeded, 0, "Completed", `{"lifecycle":"LIFECYCLE_SHUTOFF"}`), v1.Succeeded,
			"",
		},
		{
			"crashed", ended(corev1.PodFailed, 1, "Error", `{"lifecycle":"LIFECYCLE_CRASHED","reason":"panicked"}`),
			v1.Failed, vmistatus.ReasonGuestPanicked,
		},
		{"launcher killed", ended(corev1.PodFailed, 137, "Error", ""), v1.Failed, vmistatus.ReasonLauncherError},
		{"out of memory", ended(corev1.PodFailed, 137, "OOMKilled", ""), v1.Failed, "OOMKilled"},
		{"evicted", evicted, v1.Failed, "Evicted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			vmi := newVMI()
			vmi.Status.Phase = v1.Running
			w := newWorld(t, vmi, test.pod) // virt-handler did not run while it happened
			w.startHandler()
			if got := w.eventuallyPhase(test.want); got.Status.Reason != test.reason {
				t.Errorf("reason is %q, want %q", got.Status.Reason, test.reason)
			}
			w.wantEvents("Stopped")
		})
	}
}

func TestPodIsGone(t *testing.T) {
	vmi := newVMI()
	vmi.Status.Phase = v1.Running
	w := newWorld(t, vmi)
	w.must(os.RemoveAll(w.proc))
	w.startHandler()
	if got := w.eventuallyPhase(v1.Failed); got.Status.Reason != vmistatus.ReasonLauncherGone {
		t.Errorf("reason is %q", got.Status.Reason)
	}
}

func TestLauncherIsKilled(t *testing.T) {
	w := newWorld(t)
	w.startLauncher()
	h := w.startHandler()
	w.eventuallyPhase(v1.Running)
	w.must(os.WriteFile(filepath.Join(w.proc, "stat"), []byte("1 (virt-launcher) Z 0 0"), 0o644))
	w.launcher.server.Stop()
	w.eventually("the loss is noticed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		o := h.sessions[vmiKey].observation()
		return !o.LostAt.IsZero() && o.Dead
	})
	if err := context.Cause(h.Guest(vmiKey)); !errors.Is(err, streams.ErrEnded) {
		t.Errorf("to who is connected to the guest, it is gone for: %v", err)
	}
	h.kick()
	w.eventually("the queue is empty", func() bool { return len(h.queue) == 0 })
	if phase := w.vmi().Status.Phase; phase != v1.Running {
		t.Errorf("given up at once: %s", phase)
	}
	w.mu.Lock()
	w.now = w.now.Add(lostLimit)
	w.mu.Unlock()
	h.kick()
	if got := w.eventuallyPhase(v1.Failed); got.Status.Reason != vmistatus.ReasonLauncherGone {
		t.Errorf("reason is %q", got.Status.Reason)
	}
}

func TestStrangerOnTheSocket(t *testing.T) {
	w := newWorld(t)
	w.must(os.WriteFile(filepath.Join(w.proc, "cgroup"),
		[]byte("0::/kubepods/pod99999999-0000-0000-0000-000000000000/x\n"), 0o644))
	w.startLauncher()
	w.startHandler()
	w.eventually("it is refused", func() bool {
		return strings.Contains(condition(w.vmi(), v1.VirtualMachineInstanceSynchronized).Message, "is not in pod")
	})
	if starts, _ := w.launcher.counts(); starts != 0 {
		t.Errorf("Start was called %d times", starts)
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	refused := func(text string) error { return grpcstatus.Error(codes.Internal, text) }
	for i, step := range []struct {
		err  error
		want time.Duration
	}{
		{refused("23:00:01 qemu: no"), retryFirst},
		{refused("23:00:02 qemu: no"), 2 * retryFirst},
		{fmt.Errorf("%w: a", errLost), retryFirst / 10},
		{fmt.Errorf("%w: b", errLost), retryFirst / 5},
		{refused("23:00:03 qemu: no"), retryFirst},
	} {
		if got := b.next(step.err); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	for range 20 {
		b.next(refused("again"))
	}
	if got := b.next(refused("again")); got != retryMost {
		t.Errorf("at last %v", got)
	}
}

func TestDescribe(t *testing.T) {
	for text, want := range map[string]string{
		"no such machine type":                   "no such machine type",
		"line\nline\x1b[31m":                     "line line [31m",
		strings.Repeat("ä", 600):                 strings.Repeat("ä", 512),
		strings.Repeat("x", 1<<10-1) + "ä" + "y": strings.Repeat("x", 1<<10-1),
	} {
		if got := describe(grpcstatus.Error(codes.Internal, text)); got != want {
			t.Errorf("%q gives %q", text, got)
		}
	}
}

// A pod that somebody has labelled as the VMI's, but which the controller did not make, is left alone.
func TestForgedPod(t *testing.T) {
	forged := newPod()
	forged.Name, forged.UID = "forged", "11111111-2222-3333-4444-555555555555"
	w := newWorld(t, newVMI(), forged)
	w.must(writeFile(filepath.Join(w.proc, "cgroup"), "0::/kubepods/burstable/pod"+string(forged.UID)+"/cafe\n"))
	w.startLauncherOf(forged.UID)
	w.startHandler()
	if got := w.eventuallyPhase(v1.Failed); got.Status.Reason != vmistatus.ReasonLauncherGone {
		t.Errorf("reason is %q", got.Status.Reason)
	}
	if starts, _ := w.launcher.counts(); starts != 0 {
		t.Errorf("Start was called %d times", starts)
	}
}

func TestNotOurs(t *testing.T) {
	for name, change := range map[string]func(*v1.VirtualMachineInstance){
		"not scheduled": func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Scheduling },
		"another node":  func(vmi *v1.VirtualMachineInstance) { vmi.Status.NodeName = "node2" },
		"final":         func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Failed },
	} {
		t.Run(name, func(t *testing.T) {
			vmi := newVMI()
			change(vmi)
			w := newWorld(t, vmi, newPod())
			h := w.startHandler()
			w.eventually("the pass is over", func() bool { return len(h.queue) == 0 })
			h.stop()
			if len(h.sessions) != 0 || w.statusWrites() != 0 {
				t.Errorf("%d sessions, %d writes", len(h.sessions), w.statusWrites())
			}
		})
	}
}
