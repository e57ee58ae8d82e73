//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// memoryStages bring a snapshot with memory to a stage and hold it there.
func (h *hardy) memoryStages() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"claimed": func(t *testing.T) {
			h.freeze(t, h.component(t, "csi-controller", ""))
			h.take(t)
			eventually(t, 30*time.Second, "the claim for the memory is made", func() string {
				if h.memoryClaim(t) == nil {
					return "it is not"
				}
				return ""
			})
		},
		"plugged": func(t *testing.T) {
			h.freeze(t, h.process(t, h.handler(t, h.from), processServer))
			h.take(t)
			eventually(t, 30*time.Second, "the instance has the volume for the memory", func() string {
				claim := h.memoryClaim(t)
				if claim == nil || claim.Status.Phase != corev1.ClaimBound || h.pluggedMemory(t) == "" {
					return "it has not"
				}
				return ""
			})
		},
		"saving": func(t *testing.T) {
			h.take(t)
			h.waitSaving(t)
			h.freeze(t, h.process(t, &h.source, processQEMU))
			// What was over by then, the next question of virt-controller's brings to light.
			over := func() bool {
				content := h.content(t)
				return content == nil || content.Annotations[savedmemory.MemoryAnnotation] != "" || len(h.cuts(t)) > 0
			}
			for until := time.Now().Add(2 * time.Second); time.Now().Before(until) && !h.missed; h.missed = over() {
				<-time.After(100 * time.Millisecond)
			}
		},
		"saved": func(t *testing.T) {
			h.take(t)
			h.waitSaving(t)
			h.stopControllers(t)
			h.standsStill(t)
			h.missed = len(h.cuts(t)) > 0
		},
		"made with memory": func(t *testing.T) {
			h.take(t)
			h.waitSaving(t)
			h.freeze(t, h.component(t, "csi-controller", ""))
			h.waitCuts(t, "made", func(*snapshotsv1.VolumeSnapshot) bool { return true })
			h.standsStill(t)
		},
		"thawed with memory": func(t *testing.T) {
			controllers := h.controllers(t)
			h.take(t)
			often(t, "the guest may go on", func() bool {
				content := h.content(t)
				return content != nil && strings.Contains(content.Annotations[windowAnnotation], `"closed":true`)
			})
			for _, pid := range controllers {
				h.freeze(t, pid)
			}
			h.missed = h.pluggedMemory(t) == ""
		},
	}
}

// memoryClaim is the claim for the memory of the case's snapshot, nil when there is none.
func (h *hardy) memoryClaim(t *testing.T) *corev1.PersistentVolumeClaim {
	t.Helper()
	content := h.content(t)
	if content == nil {
		return nil
	}
	list, err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Name == savedmemory.Volume(content.UID) {
			return &list.Items[i]
		}
	}
	return nil
}

// waitSaving waits until the guest's memory is being written.
func (h *hardy) waitSaving(t *testing.T) {
	t.Helper()
	launcher := h.process(t, &h.source, processLauncher)
	often(t, "the guest's memory is being written", func() bool {
		found, err := filepath.Glob(fmt.Sprintf("/proc/%d/root%s/*/%s", launcher, names.HotplugDir, savedmemory.File))
		if err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	})
}

// pluggedMemory is the volume for the guest's memory that its instance has, or what is left of one; empty for none.
func (h *hardy) pluggedMemory(t *testing.T) string {
	t.Helper()
	vmi := h.vmi(t)
	if vmi == nil {
		return ""
	}
	for _, volume := range vmi.Spec.Volumes {
		if savedmemory.IsVolume(volume.Name) {
			return "volume " + volume.Name
		}
	}
	for _, status := range vmi.Status.VolumeStatus {
		if savedmemory.IsVolume(status.Name) {
			return "the status of volume " + status.Name
		}
	}
	pods, err := h.Kube.CoreV1().Pods(h.ns).List(t.Context(), metav1.ListOptions{
		LabelSelector: names.LabelComponent + "=" + names.HotplugDisk,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		for _, volume := range pod.Spec.Volumes {
			if c := volume.PersistentVolumeClaim; c != nil && strings.HasPrefix(c.ClaimName, "vmsnapshot-memory-") {
				return "pod " + pod.Name + " of claim " + c.ClaimName
			}
		}
	}
	for _, pod := range h.pods(t) {
		for _, pid := range named(processes(t, string(pod.UID)), processLauncher) {
			mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if strings.Contains(string(mounts), names.HotplugDir+"/"+savedmemory.Volume("")) {
				return "a mount in pod " + pod.Name
			}
		}
	}
	return ""
}

// wholeMemory checks what a snapshot says of the guest's memory that it has, and that it has it.
func (h *hardy) wholeMemory(t *testing.T, snapshot *snapshotv1beta1.VirtualMachineSnapshot) {
	t.Helper()
	content := &snapshotv1beta1.VirtualMachineSnapshotContent{}
	key := h.key()
	key.Name = snapshots.ContentName(snapshot)
	if err := h.Client.Get(t.Context(), key, content); err != nil {
		t.Fatal(err)
	}
	memory := savedmemory.MemoryOf(content.Annotations)
	if !memory.Whole() || !slices.Contains(indications(snapshot), snapshots.WithMemory) {
		t.Errorf("%s is ready, and has no memory: %+v, %v", snapshot.Name, memory, indications(snapshot))
		return
	}
	said, err := h.debugMemory(t, memory.Claim, "stat /"+savedmemory.File)
	if err != nil || !strings.Contains(said, fmt.Sprintf("Size: %d", memory.Size)) {
		t.Errorf("the memory has %d bytes, and its file is %s, %v", memory.Size, said, err)
	}
}

// debugMemory looks into a claim with memory.
func (h *hardy) debugMemory(t *testing.T, claim, request string) (string, error) {
	t.Helper()
	found, err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).Get(t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(h.pool(t), "volumes", found.Spec.VolumeName, "image")
	out, err := exec.CommandContext(t.Context(), "debugfs", "-R", request, image).Output()
	return string(out), err
}

// resumeStages bring the start of a VM that was restored with its guest's memory to a stage and hold it there.
func (h *hardy) resumeStages() map[string]func(*testing.T) {
	start := func(t *testing.T) { h.virtctl(t, nil, "-n", h.ns, "start", h.name) }
	pod := func(t *testing.T, command string) (pid int) {
		often(t, command+" runs", func() bool {
			for _, pod := range h.pods(t) {
				if found := named(processes(t, string(pod.UID)), command); len(found) > 0 {
					h.source, h.from, pid = pod, pod.Spec.NodeName, found[0]
				}
			}
			return pid != 0
		})
		return pid
	}
	return map[string]func(*testing.T){
		"starting": func(t *testing.T) {
			for _, pod := range h.componentPods(t, names.VirtHandler) {
				h.freeze(t, h.process(t, &pod, processServer))
			}
			start(t)
			pod(t, processLauncher)
		},
		"loading": func(t *testing.T) {
			start(t)
			h.freeze(t, pod(t, processQEMU))
			h.missed = h.tokens(t) > 0
		},
		"going": func(t *testing.T) {
			start(t)
			pod(t, processQEMU)
			h.stopControllers(t)
			eventually(t, bootTime, "the guest goes on", func() string {
				if vmi := h.vmi(t); vmi == nil || vmi.Status.Phase != v1.Running {
					return "not yet"
				}
				return ""
			})
			h.missed = h.vm(t).Annotations[savedmemory.ResumeAnnotation] == ""
		},
	}
}

// tokens is how many guests the memory of the snapshot that is restored says that it has resumed, of this restore.
func (h *hardy) tokens(t *testing.T) int {
	t.Helper()
	claim := h.memoryClaim(t)
	if claim == nil {
		t.Fatal("the snapshot has no claim with memory")
	}
	said, err := h.debugMemory(t, claim.Name, "ls -p /")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(said, (&savedmemory.Resume{Restore: h.restore.UID}).Token())
}

// baseMemory takes the snapshot that is restored with its memory, and stops the guest.
func (h *hardy) baseMemory(t *testing.T) {
	t.Helper()
	h.bootID = h.in(t, "cat", bootIDFile)
	h.snapshot = &snapshotv1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.ns, Name: baseName, Annotations: map[string]string{savedmemory.IncludeAnnotation: "true"},
		},
		Spec: snapshotv1beta1.VirtualMachineSnapshotSpec{Source: machine(h.name)},
	}
	h.cluster.take(t, h.snapshot)
	eventually(t, 30*time.Second, "nothing is plugged in", func() string { return h.pluggedMemory(t) })
	h.wholeMemory(t, h.snapshot)
	numbers, err := h.cut(t, h.snapshot)
	if err != nil {
		t.Fatal(err)
	}
	h.numbers = numbers
}

// bootIDFile is another after each boot, and the same after a resume.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// runResume restores the VM with its guest's memory and starts it, and makes something fail at a stage of that.
func (h *hardy) runResume(t *testing.T, stage, victim string, want end) {
	begun := time.Now()
	defer h.release(t)
	for try := 1; !h.reachResume(t, stage); try++ {
		if try == 6 {
			t.Fatalf("%s was over each time before it could be held", stage)
		}
		t.Logf("try %d: %s was over before it could be held, after %v; once more", try, stage,
			time.Since(begun).Round(100*time.Millisecond))
		h.release(t)
		h.goesOn(t)
	}
	before, err := h.disks(t)
	if err != nil {
		t.Fatal(err)
	}
	h.victims()[victim](t)
	h.release(t)
	eventually(t, bootTime, "the VM forgets the memory", func() string {
		return h.vm(t).Annotations[savedmemory.ResumeAnnotation]
	})
	h.goesOn(t)
	now, err := h.disks(t)
	if err != nil {
		t.Fatal(err)
	}
	if now[0] <= before[0] || now[0] <= h.numbers[0] {
		t.Errorf("the disks have %v, had %v when it failed, and %v in the snapshot", now, before, h.numbers)
	}
	if bootID := h.in(t, "cat", bootIDFile); (bootID == h.bootID) != (want == resumed) {
		t.Errorf("the guest is of boot %s, and in memory it was of %s", bootID, h.bootID)
	}
	if said := h.in(t, "sh", "-c", "dmesg | grep -i 'ext[24]-fs error\\|i/o error' || true"); said != "" {
		t.Errorf("the guest's kernel complains of its disks: %s", said)
	}
	h.virtctl(t, nil, "-n", h.ns, "stop", h.name)
	h.waitGone(t, 60*time.Second)
	if n := h.tokens(t); n != 1 {
		t.Errorf("%d records of guests that were resumed", n)
	}
	h.forgetRestore(t)
	t.Logf("%s at %s: the guest %s, %v", victim, stage, want, time.Since(begun).Round(100*time.Millisecond))
}

// reachResume restores the VM, and brings its start to a stage; false when it was past it already.
func (h *hardy) reachResume(t *testing.T, stage string) bool {
	t.Helper()
	h.n++
	h.missed, h.stage = false, stage
	if h.restore != nil {
		h.virtctl(t, nil, "-n", h.ns, "stop", h.name)
		h.waitGone(t, 60*time.Second)
		h.forgetRestore(t)
	}
	h.beginRestore(t)
	h.settledRestore(t, done)
	h.resumeStages()[stage](t)
	return !h.missed
}
