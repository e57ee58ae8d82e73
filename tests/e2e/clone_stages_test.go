//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// runClone makes one clone, and something fail at a stage of it.
func (h *hardy) runClone(t *testing.T, stage, victim string, want end) {
	begun := time.Now()
	defer h.release(t)
	h.before = h.claims(t)
	h.source = h.current(t)
	h.from = h.vmi(t).Status.NodeName
	for try := 1; !h.reachClone(t, stage); try++ {
		if try == 6 {
			t.Fatalf("%s was over each time before it could be held", stage)
		}
		t.Logf("try %d: %s was over before it could be held, after %v; once more", try, stage,
			time.Since(begun).Round(100*time.Millisecond))
		h.release(t)
		h.settledClone(t, done)
		h.forgetClone(t)
	}
	h.victims()[victim](t)
	h.release(t)
	h.settledClone(t, want)
	h.wholeClone(t, want, victim == "name taken")
	h.forgetClone(t)
	if victim == "delete VM" {
		h.waitGone(t, 60*time.Second)
		h.forget(t)
		h.boot(t)
	} else {
		h.sound(t, true)
	}
	t.Logf("%s at %s: the clone %s, %v", victim, stage, want, time.Since(begun).Round(100*time.Millisecond))
}

// reachClone begins a clone and brings it to a stage; false when it was past it already.
func (h *hardy) reachClone(t *testing.T, stage string) bool {
	t.Helper()
	h.n++
	h.missed, h.stage = false, stage
	h.snapshot = &snapshotv1beta1.VirtualMachineSnapshot{}
	h.cloneStages()[stage](t)
	return !h.missed
}

// beginClone makes the clone of the VM.
func (h *hardy) beginClone(t *testing.T) {
	t.Helper()
	source, target := machine(h.name), machine(fmt.Sprintf("copy-%d", h.n))
	h.clone = &clonev1beta1.VirtualMachineClone{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: fmt.Sprintf("clone-%d", h.n)},
		Spec:       clonev1beta1.VirtualMachineCloneSpec{Source: &source, Target: &target},
	}
	if err := h.Client.Create(t.Context(), h.clone); err != nil {
		t.Fatal(err)
	}
}

// cloneStages bring a clone to a stage and hold it there.
func (h *hardy) cloneStages() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"cutting": func(t *testing.T) {
			h.freeze(t, h.component(t, "csi-controller", ""))
			h.beginClone(t)
			h.waitPart(t, "snapshot", "the snapshot is made", h.snapshot, func() bool { return true })
			h.waitCuts(t, "made", func(*snapshotsv1.VolumeSnapshot) bool { return true })
		},
		"filling": func(t *testing.T) {
			csi := h.component(t, "csi-controller", "")
			h.beginClone(t)
			// Not first when the restore is made: its claims may be filled before this test knows of it, and each try
			// more takes a clone and its deletion, some 20 s.
			h.waitPart(t, "snapshot", "the snapshot is ready", h.snapshot,
				func() bool { return snapshots.Ready(h.snapshot) })
			h.freeze(t, csi)
			eventually(t, 30*time.Second, "the claims are made", func() string {
				claims := h.copies(t)
				if len(claims) != len(written) {
					return fmt.Sprint("there are ", len(claims))
				}
				h.missed = !slices.ContainsFunc(claims, func(claim corev1.PersistentVolumeClaim) bool {
					return claim.Status.Phase != corev1.ClaimBound
				})
				return ""
			})
		},
		"named": func(t *testing.T) {
			controllers := h.controllers(t)
			h.beginClone(t)
			often(t, "the new VM is there", func() bool { return h.copied(t) != nil })
			for _, pid := range controllers {
				h.freeze(t, pid)
			}
			if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.clone), h.clone); err != nil {
				t.Fatal(err)
			}
			h.missed = h.clone.Status.Phase == clonev1beta1.Succeeded
		},
	}
}

// waitPart waits until what a clone makes for a while, its snapshot or its restore, is as far as is says.
func (h *hardy) waitPart(t *testing.T, part, what string, into client.Object, is func() bool) {
	t.Helper()
	key := client.ObjectKey{Namespace: h.ns, Name: "tmp-" + part + "-" + string(h.clone.UID)}
	often(t, what, func() bool {
		err := h.Client.Get(t.Context(), key, into)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil && is()
	})
}

// copied is the new VM, nil when there is none.
func (h *hardy) copied(t *testing.T) *v1.VirtualMachine {
	t.Helper()
	vm := &v1.VirtualMachine{}
	err := h.Client.Get(t.Context(), client.ObjectKey{Namespace: h.ns, Name: h.clone.Spec.Target.Name}, vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// copies are the claims that are there since the case began.
func (h *hardy) copies(t *testing.T) (made []corev1.PersistentVolumeClaim) {
	t.Helper()
	list, err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range list.Items {
		if !h.before[claim.Name] {
			made = append(made, claim)
		}
	}
	return made
}

// takeName makes a VM that has the name of the new one.
func (h *hardy) takeName(t *testing.T) {
	t.Helper()
	vm := newVM(h.ns, h.clone.Spec.Target.Name, v1.RunStrategyHalted)
	if err := h.Client.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
}

// settledClone waits for the clone's end, after which nothing temporary is left.
func (h *hardy) settledClone(t *testing.T, want end) {
	t.Helper()
	eventually(t, bootTime, "the clone "+string(want), func() string {
		err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.clone), h.clone)
		switch phase := h.clone.Status.Phase; {
		case apierrors.IsNotFound(err):
			if want != gone {
				t.Fatal("the clone is gone")
			}
		case err != nil:
			return err.Error()
		case want == done && phase == clonev1beta1.Succeeded, want == failed && phase == clonev1beta1.Failed:
		case want != gone && (phase == clonev1beta1.Succeeded || phase == clonev1beta1.Failed):
			t.Fatalf("the clone is %s: %+v", phase, h.clone.Status.Conditions)
		default:
			return fmt.Sprintf("%+v", h.clone.Status)
		}
		return ""
	})
	eventually(t, 60*time.Second, "nothing temporary is left", func() string {
		var restores snapshotv1beta1.VirtualMachineRestoreList
		if err := h.Client.List(t.Context(), &restores, client.InNamespace(h.ns)); err != nil {
			return err.Error()
		}
		for _, restore := range restores.Items {
			if strings.HasPrefix(restore.Name, "tmp-restore-") {
				return "restore " + restore.Name + " is there"
			}
		}
		for _, snapshot := range h.snapshots(t) {
			if strings.HasPrefix(snapshot.Name, "tmp-snapshot-") {
				return "snapshot " + snapshot.Name + " is there"
			}
		}
		return ""
	})
}

// wholeClone checks that the new VM has disks of one instant, or that nothing is left of it; and what the clone says.
func (h *hardy) wholeClone(t *testing.T, want end, taken bool) {
	t.Helper()
	if want != gone {
		conditions := map[clonev1beta1.ConditionType]corev1.ConditionStatus{}
		for _, c := range h.clone.Status.Conditions {
			conditions[c.Type] = c.Status
		}
		is := conditions[clonev1beta1.ConditionReady] == corev1.ConditionTrue
		if conditions[clonev1beta1.ConditionProgressing] != corev1.ConditionFalse || is != (want == done) {
			t.Errorf("a clone that %s says %+v", want, h.clone.Status.Conditions)
		}
	}
	vm := h.copied(t)
	if want != done {
		if taken != (vm != nil) {
			t.Errorf("the VM of the clone's name: %v", vm)
		}
		eventually(t, 60*time.Second, "no claim is left", func() string {
			if left := h.copies(t); len(left) > 0 {
				return "claim " + left[0].Name
			}
			return ""
		})
		return
	}
	if vm == nil {
		t.Fatal("there is no new VM")
	}
	var images []string
	for _, disk := range written {
		for _, volume := range vm.Spec.Template.Spec.Volumes {
			if volume.Name != disk {
				continue
			}
			claim, err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).
				Get(t.Context(), volume.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if h.before[claim.Name] || claim.Status.Phase != corev1.ClaimBound {
				t.Fatalf("the new VM has the claim %s, which is %s", claim.Name, claim.Status.Phase)
			}
			images = append(images, filepath.Join("volumes", claim.Spec.VolumeName))
		}
	}
	numbers, err := h.read(t, images)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s has %v", vm.Name, numbers)
	oneInstant(t, numbers)
}

// forgetClone deletes the clone, the new VM, and the claims that it names: those of a source that does not own its
// claims stay, as the user's.
func (h *hardy) forgetClone(t *testing.T) {
	t.Helper()
	objects := []client.Object{h.clone}
	if vm := h.copied(t); vm != nil {
		objects = append(objects, vm)
		for _, volume := range vm.Spec.Template.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				claim := &corev1.PersistentVolumeClaim{}
				claim.Namespace, claim.Name = h.ns, volume.PersistentVolumeClaim.ClaimName
				objects = append(objects, claim)
			}
		}
	}
	for _, object := range objects {
		if err := h.Client.Delete(t.Context(), object); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 60*time.Second, "nothing is left of the clone", func() string {
		if h.copied(t) != nil {
			return "the new VM is there"
		}
		if left := h.copies(t); len(left) > 0 {
			return "claim " + left[0].Name + " is there"
		}
		return ""
	})
	h.clone = nil
}
