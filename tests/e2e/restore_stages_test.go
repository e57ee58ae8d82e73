//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// baseName is the snapshot that is restored.
const baseName = "base"

// base takes the snapshot that is restored.
func (h *hardy) base(t *testing.T) {
	t.Helper()
	h.in(t, "true") // its agent answers, also when it has just booted
	h.snapshot = h.cluster.snapshot(t, h.ns, h.name, baseName, snapshotv1beta1.VMSnapshotGuestAgentIndication)
	numbers, err := h.cut(t, h.snapshot)
	if err != nil {
		t.Fatal(err)
	}
	oneInstant(t, numbers)
	h.numbers = numbers
	h.from = h.vmi(t).Status.NodeName
}

// forgetBase deletes that snapshot.
func (h *hardy) forgetBase(t *testing.T) {
	t.Helper()
	if err := h.Client.Delete(t.Context(), h.snapshot); err != nil {
		t.Fatal(err)
	}
	h.settledSnapshot(t, gone)
	h.start(t)
	h.goesOn(t)
}

// start starts the VM, unless it runs: no case of a restore was chosen then.
func (h *hardy) start(t *testing.T) {
	t.Helper()
	err := h.Client.Get(t.Context(), types.NamespacedName{Namespace: h.ns, Name: h.name}, &v1.VirtualMachineInstance{})
	switch {
	case apierrors.IsNotFound(err):
		h.virtctl(t, nil, "-n", h.ns, "start", h.name)
	case err != nil:
		t.Fatal(err)
	}
}

// runRestore makes one restore, and something fail at a stage of it.
func (h *hardy) runRestore(t *testing.T, stage, victim string, want end) {
	begun := time.Now()
	defer h.release(t)
	h.baseAgain(t)
	h.before = h.claims(t)
	for try := 1; !h.reachRestore(t, stage); try++ {
		if try == 6 {
			t.Fatalf("%s was over each time before it could be held", stage)
		}
		t.Logf("try %d: %s was over before it could be held, after %v; once more", try, stage,
			time.Since(begun).Round(100*time.Millisecond))
		h.release(t)
		h.settledRestore(t, done)
		h.forgetRestore(t)
	}
	old := h.vm(t)
	h.victims()[victim](t)
	h.release(t)
	h.settledRestore(t, want)
	if want == failed {
		h.discarded(t)
	}
	h.sound(t, stage == "running")
	if stage == "running" {
		h.forgetRestore(t)
		return
	}
	h.waitGone(t, 60*time.Second) // a guest that is being stopped goes on stopping
	h.whole(t, want == done || stage == "written" || stage == "replaced", old)
	h.forgetRestore(t)
	t.Logf("%s at %s: the restore %s, %v", victim, stage, want, time.Since(begun).Round(100*time.Millisecond))
}

// claimsOf are the names of the claims that a VM's spec names.
func claimsOf(vm *v1.VirtualMachine) (out []string) {
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			out = append(out, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return out
}

// whole checks that the VM is the restored one, whole, or the one that it was, old.
func (h *hardy) whole(t *testing.T, restored bool, old *v1.VirtualMachine) {
	t.Helper()
	vm := h.vm(t)
	claims := claimsOf(vm)
	if !restored && !equality.Semantic.DeepEqual(vm.Spec, old.Spec) {
		t.Errorf("the VM is %+v, and was %+v", vm.Spec, old.Spec)
	}
	eventually(t, 30*time.Second, "the VM's claims are whole", func() string {
		for _, name := range claims {
			claim, err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil {
				return fmt.Sprintf("claim %s is %s", name, claim.Status.Phase)
			}
		}
		return ""
	})
	numbers, err := h.disks(t)
	if err != nil {
		t.Fatal(err)
	}
	if restored && !slices.Equal(numbers, h.numbers) {
		t.Errorf("the disks have %v, and the snapshot %v", numbers, h.numbers)
	}
	if !restored && h.stopped != nil && numbers[0] < slices.Max(h.stopped) {
		t.Errorf("the disks have %v, and had %v when the guest was stopped", numbers, h.stopped)
	}
	oneInstant(t, numbers)
	if vmi := h.vmi(t); vmi != nil {
		t.Errorf("the VM has started: %s", vmi.Status.Phase)
	}
}

// reachRestore begins a restore and brings it to a stage; false when it was past it already.
func (h *hardy) reachRestore(t *testing.T, stage string) bool {
	t.Helper()
	h.n++
	h.missed, h.stopped = false, nil
	h.restoreStages()[stage](t)
	return !h.missed
}

// beginRestore makes the restore. A guest that runs is stopped.
func (h *hardy) beginRestore(t *testing.T, change ...func(*snapshotv1beta1.VirtualMachineRestoreSpec)) {
	t.Helper()
	h.restore = &snapshotv1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: fmt.Sprintf("back-%d", h.n)},
		Spec: snapshotv1beta1.VirtualMachineRestoreSpec{
			Target: machine(h.name), VirtualMachineSnapshotName: baseName,
			TargetReadinessPolicy: ptr(snapshotv1beta1.VirtualMachineRestoreStopTarget),
		},
	}
	for _, f := range change {
		f(&h.restore.Spec)
	}
	if err := h.Client.Create(t.Context(), h.restore); err != nil {
		t.Fatal(err)
	}
}

// restoreStages bring a restore to a stage and hold it there.
func (h *hardy) restoreStages() map[string]func(*testing.T) {
	claims := func(t *testing.T) {
		h.freeze(t, h.component(t, "csi-controller", ""))
		h.beginRestore(t)
		h.waitMade(t, func(*corev1.PersistentVolumeClaim) bool { return true })
	}
	return map[string]func(*testing.T){
		"claims": claims,
		"bound": func(t *testing.T) {
			claims(t)
			csi := h.frozen[0]
			h.stopControllers(t)
			if err := syscall.Kill(csi, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			h.waitMade(t, func(claim *corev1.PersistentVolumeClaim) bool {
				return claim.Status.Phase == corev1.ClaimBound
			})
		},
		"written": func(t *testing.T) {
			controllers := h.controllers(t)
			h.beginRestore(t)
			often(t, "the VM is written", func() bool { return h.marked(h.vm(t)) })
			for _, pid := range controllers {
				h.freeze(t, pid)
			}
			if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.restore), h.restore); err != nil {
				t.Fatal(err)
			}
			s := h.restore.Status
			h.missed = s != nil && s.Complete != nil && *s.Complete
		},
		"replaced": func(t *testing.T) {
			h.freeze(t, h.component(t, "csi-controller", ""))
			h.beginRestore(t, func(spec *snapshotv1beta1.VirtualMachineRestoreSpec) {
				spec.VolumeRestorePolicy = ptr(snapshotv1beta1.VolumeRestorePolicyInPlace)
			})
			h.waitMade(t, func(*corev1.PersistentVolumeClaim) bool { return true })
		},
		"stopping": func(t *testing.T) {
			h.start(t)
			h.goesOn(t)
			h.from = h.vmi(t).Status.NodeName
			eventually(t, 30*time.Second, "the disks can be read", func() string {
				var err error
				if h.stopped, err = h.disks(t); err != nil {
					return err.Error()
				}
				return ""
			})
			controllers := h.controllers(t)
			h.beginRestore(t)
			often(t, "the VM is being stopped", func() bool {
				strategy := h.vm(t).Spec.RunStrategy
				return strategy != nil && *strategy == v1.RunStrategyHalted
			})
			for _, pid := range controllers {
				h.freeze(t, pid)
			}
			h.missed = h.marked(h.vm(t))
		},
		"running": func(t *testing.T) {
			h.beginRestore(t, func(spec *snapshotv1beta1.VirtualMachineRestoreSpec) {
				spec.TargetReadinessPolicy = ptr(snapshotv1beta1.VirtualMachineRestoreFailImmediate)
			})
		},
		"quota": func(t *testing.T) {
			h.forbid(t, corev1.ResourcePersistentVolumeClaims, fmt.Sprint(len(h.before)+1))
			h.beginRestore(t)
			eventually(t, 30*time.Second, "the restore says why it waits", func() string {
				if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.restore), h.restore); err != nil {
					return err.Error()
				}
				if s := h.restore.Status; s == nil ||
					!strings.Contains(fmt.Sprintf("%+v", s.Conditions), "exceeded quota") {
					return fmt.Sprintf("%+v", s)
				}
				return ""
			})
		},
	}
}

func (h *hardy) marked(object client.Object) bool {
	return object.GetAnnotations()["restore.kubevirt.io/lastRestoreUID"] == h.restore.Name+"-"+string(h.restore.UID)
}

// waitMade waits until all claims that the restore makes are something.
func (h *hardy) waitMade(t *testing.T, is func(*corev1.PersistentVolumeClaim) bool) {
	t.Helper()
	eventually(t, 60*time.Second, "the claims are there", func() string {
		list, err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		found := 0
		for i := range list.Items {
			if h.marked(&list.Items[i]) && is(&list.Items[i]) {
				found++
			}
		}
		if found != len(written) {
			return fmt.Sprint(found, " are")
		}
		return ""
	})
}

// settledRestore waits for the restore's end.
func (h *hardy) settledRestore(t *testing.T, want end) {
	t.Helper()
	eventually(t, bootTime, "the restore "+string(want), func() string {
		err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.restore), h.restore)
		switch {
		case apierrors.IsNotFound(err):
			if want == gone {
				return ""
			}
			t.Fatal("the restore is gone")
		case err != nil:
			return err.Error()
		}
		s := h.restore.Status
		if s == nil || want == gone {
			return fmt.Sprintf("%+v", s)
		}
		isFailed := slices.ContainsFunc(s.Conditions, func(c snapshotv1beta1.Condition) bool {
			return c.Type == snapshotv1beta1.ConditionFailure && c.Status == corev1.ConditionTrue
		})
		complete := s.Complete != nil && *s.Complete
		switch {
		case want == done && complete, want == failed && isFailed:
			return ""
		case complete || isFailed:
			t.Fatalf("%+v", s)
		}
		return fmt.Sprintf("%+v", s)
	})
	if want == done {
		for _, c := range h.restore.Status.Conditions {
			if is := c.Status == corev1.ConditionTrue; is != (c.Type == snapshotv1beta1.ConditionReady) {
				t.Errorf("a restore that is complete says %+v", h.restore.Status.Conditions)
			}
		}
	}
}

// forgetRestore deletes the restore, and the claims that the VM had before: those stay, as the user's.
func (h *hardy) forgetRestore(t *testing.T) {
	t.Helper()
	if err := h.Client.Delete(t.Context(), h.restore); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	h.settledRestore(t, gone)
	h.restore = nil
	old := h.claims(t)
	for _, name := range claimsOf(h.vm(t)) {
		if !old[name] {
			t.Errorf("claim %s of the VM is gone with the restore", name)
		}
		delete(old, name)
	}
	for name := range maps.Keys(old) {
		if savedmemory.IsVolume(name) {
			continue // it is the snapshot's
		}
		if err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).Delete(t.Context(),
			name, metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	eventually(t, 30*time.Second, "the VM's claims alone are left", func() string {
		h.before = nil
		return h.leaks(t, h.vm(t))
	})
}

// startAgain starts the restored VM, which goes on with the numbers of the snapshot.
func (h *hardy) startAgain(t *testing.T) {
	t.Helper()
	h.start(t)
	h.waitPhase(t, bootTime, v1.Running)
	h.sound(t, true)
	numbers, err := h.disks(t)
	if err != nil {
		t.Fatal(err)
	}
	if numbers[0] <= h.numbers[0] {
		t.Errorf("the guest has %v, and began with %v", numbers, h.numbers)
	}
}
