//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// hardy is a VM that is snapshotted and restored while something fails.
type hardy struct {
	*faulty
	// poolDir is where virt-local's CSI driver has its images.
	poolDir string
	// before are the claims that a case has found.
	before map[string]bool

	// numbers are those of the snapshot that is restored, and bootID is that of the guest in its memory. stopped are
	// those of a running guest that the restore stops, nil for one that was off.
	numbers, stopped []int
	bootID           string

	// Of the case of now: memory says that its snapshot has the guest's memory.
	stage    string
	memory   bool
	snapshot *snapshotv1beta1.VirtualMachineSnapshot
	restore  *snapshotv1beta1.VirtualMachineRestore
	clone    *clonev1beta1.VirtualMachineClone
	// unplug takes away the volume of which no snapshot can be made, once the snapshot is gone; nil for none.
	unplug func()
}

// written are the disks to which hardy's guest writes the same rising number, one after the other.
var written = []string{"one", "two", "three"}

// counting has the guest write that number in place: whoever reads a disk that was pulled finds one or the other. It
// ends at the first disk that a guest which goes down has unmounted: its init unmounts them one after the other.
const counting = `T='one two three'
for t in $T; do
  for d in /sys/block/vd*; do [ "$(cat $d/serial)" = $(echo $t | tr a-z A-Z) ] && D=/dev/${d##*/}; done
  mkdir -p /$t; mount $D /$t || { mke2fs $D && mount $D /$t; }
  [ -s /$t/n ] || echo 00000000000001 >/$t/n
done
sync
n=$(sed 's/^0*//' /one/n)
while :; do
  n=$((n+1))
  for t in $T; do
    printf '%014d\n' $n | dd of=/$t/n bs=15 conv=notrunc,fsync 2>/dev/null && grep -q " /$t " /proc/mounts || exit
  done
done`

// boot starts the VM anew, with disks that may have been written.
func (h *hardy) boot(t *testing.T) {
	t.Helper()
	script := strings.ReplaceAll(counting, "\n", "\n    ")
	vm := newVM(h.ns, h.name, v1.RunStrategyAlways, withoutRoot,
		withUserData("#cloud-config\nuser: root\npassword: tiny\nruncmd:\n- |\n  (\n    "+script+
			"\n  ) >/dev/null 2>&1 &\n"))
	for _, disk := range written {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
			Name: disk, Serial: strings.ToUpper(disk),
			DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		})
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: disk, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: disk},
			},
		}})
	}
	h.create(t, vm)
	h.waitLogin(t)
	h.in(t, "true") // its agent answers
	h.goesOn(t)
}

// runSnapshot makes one snapshot, and something fail at a stage of it.
func (h *hardy) runSnapshot(t *testing.T, stage, victim string, want end) {
	begun := time.Now()
	defer h.release(t)
	h.before = h.claims(t)
	for try := 1; !h.reachSnapshot(t, stage, victim); try++ {
		if try == 6 {
			t.Fatalf("%s could not be held", stage)
		}
		t.Logf("try %d: %s could not be held, after %v; once more", try, stage,
			time.Since(begun).Round(100*time.Millisecond))
		h.release(t)
		h.settledSnapshot(t, over) // its deadline may have passed meanwhile
		h.forget(t)
	}
	h.victims()[victim](t)
	h.release(t)
	h.settledSnapshot(t, want)
	if victim == "delete VM" {
		h.waitGone(t, 60*time.Second)
		h.forget(t)
		h.boot(t)
		return
	}
	if want == done && !h.memory && slices.Contains([]string{"frozen", "made", "cut"}, stage) {
		h.byAgent(t, victim)
	}
	h.sound(t, true)
	h.forget(t)
	t.Logf("%s at %s: the snapshot %s, %v", victim, stage, want, time.Since(begun).Round(100*time.Millisecond))
}

// reachSnapshot begins a snapshot and brings it to a stage; false when it was past it already.
func (h *hardy) reachSnapshot(t *testing.T, stage, victim string) bool {
	t.Helper()
	h.n++
	h.missed, h.stage = false, stage
	h.from = h.vmi(t).Status.NodeName
	h.source = h.current(t)
	h.snapshot = &snapshotv1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: fmt.Sprintf("case-%d", h.n)},
		Spec:       snapshotv1beta1.VirtualMachineSnapshotSpec{Source: machine(h.name)},
	}
	if h.memory {
		h.snapshot.Annotations = map[string]string{savedmemory.IncludeAnnotation: "true"}
	}
	switch victim {
	case "deadline", "controller away", "both away":
		h.snapshot.Spec.FailureDeadline = &metav1.Duration{Duration: 6 * time.Second}
		if h.memory { // for which there has to be a claim first
			h.snapshot.Spec.FailureDeadline.Duration = 20 * time.Second
		}
	case "agent hangs":
		h.agent(t, "kill -STOP $(pidof qemu-ga)", "kill -CONT $(pidof qemu-ga)")
	case "agent freezes nothing":
		h.agent(t, liar, honest)
	}
	if h.memory {
		h.memoryStages()[stage](t)
	} else {
		h.snapshotStages()[stage](t)
	}
	return !h.missed
}

// take makes the snapshot.
func (h *hardy) take(t *testing.T) {
	t.Helper()
	if err := h.Client.Create(t.Context(), h.snapshot); err != nil {
		t.Fatal(err)
	}
}

// snapshotStages bring a snapshot to a stage and hold it there.
func (h *hardy) snapshotStages() map[string]func(*testing.T) {
	made := func(t *testing.T) {
		h.freeze(t, h.component(t, "csi-controller", ""))
		h.take(t)
		h.waitCuts(t, "made", func(*snapshotsv1.VolumeSnapshot) bool { return true })
		h.waitFrozen(t)
	}
	return map[string]func(*testing.T){
		"locked": func(t *testing.T) {
			h.forbid(t, "count/virtualmachinesnapshotcontents.snapshot.kubevirt.io", "0")
			h.take(t)
			eventually(t, 30*time.Second, "the VM is locked", func() string {
				if by := h.vm(t).Status.SnapshotInProgress; by == nil {
					return "it is not"
				}
				return ""
			})
			if h.missed = h.content(t) != nil; h.missed {
				return
			}
			eventually(t, 30*time.Second, "the snapshot says why it waits", func() string {
				if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.snapshot), h.snapshot); err != nil {
					return err.Error()
				}
				if s := h.snapshot.Status; s == nil || s.Error == nil || !strings.Contains(*s.Error.Message, "quota") {
					return fmt.Sprintf("%+v", s)
				}
				return ""
			})
		},
		"frozen": func(t *testing.T) {
			handler := h.process(t, h.handler(t, h.from), processServer)
			h.freeze(t, handler)
			h.take(t)
			var since time.Time
			eventually(t, 30*time.Second, "virt-handler is asked to freeze the guest", func() string {
				content := h.content(t)
				if content == nil || content.Annotations[windowAnnotation] == "" {
					return "not yet"
				}
				if since.IsZero() {
					since = time.Now()
				}
				if time.Since(since) < time.Second {
					return "it may be on its way"
				}
				return ""
			})
			h.stopControllers(t)
			if err := syscall.Kill(handler, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			h.missed = !h.freezes(t) || len(h.cuts(t)) > 0
		},
		"made": made,
		"cut": func(t *testing.T) {
			made(t)
			csi := h.frozen[0]
			h.stopControllers(t)
			if err := syscall.Kill(csi, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			h.waitCuts(t, "cut", func(cut *snapshotsv1.VolumeSnapshot) bool {
				return cut.Status != nil && cut.Status.CreationTime != nil
			})
		},
		"thawed": func(t *testing.T) {
			controllers := h.controllers(t)
			h.take(t)
			often(t, "the guest may go on", func() bool {
				content := h.content(t)
				return content != nil && strings.Contains(content.Annotations[windowAnnotation], `"closed":true`)
			})
			for _, pid := range controllers {
				h.freeze(t, pid)
			}
			if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.snapshot), h.snapshot); err != nil {
				t.Fatal(err)
			}
			h.missed = h.snapshot.Status != nil && h.snapshot.Status.Phase == snapshotv1beta1.Succeeded
		},
		"asked": h.take,
		"broken": func(t *testing.T) {
			h.plugBroken(t)
			h.take(t)
			eventually(t, 30*time.Second, "the error is told", func() string {
				if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.snapshot), h.snapshot); err != nil {
					return err.Error()
				}
				s := h.snapshot.Status
				if s == nil || s.Error == nil || s.Error.Message == nil ||
					!strings.Contains(*s.Error.Message, "its class says so") {
					return fmt.Sprintf("%+v", s)
				}
				return ""
			})
			h.goesOn(t) // before the deadline
		},
	}
}

// windowAnnotation is what virt-controller knows of a freeze.
const windowAnnotation = "virtkit.io/freeze-window"

// forbid has a quota refuse more of a resource, until the case is over.
func (h *hardy) forbid(t *testing.T, what corev1.ResourceName, most string) {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: fmt.Sprintf("none-%d", h.n)},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: resource.MustParse(most)}},
	}
	if err := h.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	h.undo = append(h.undo, func() {
		if err := h.Client.Delete(context.Background(), quota); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	eventually(t, 30*time.Second, "the quota is known", func() string {
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
			return err.Error()
		}
		if len(quota.Status.Hard) == 0 {
			return "not yet"
		}
		return ""
	})
}

// content is the snapshot's, nil when there is none.
func (h *hardy) content(t *testing.T) *snapshotv1beta1.VirtualMachineSnapshotContent {
	t.Helper()
	content := &snapshotv1beta1.VirtualMachineSnapshotContent{}
	key := client.ObjectKey{Namespace: h.ns, Name: "vmsnapshot-content-" + string(h.snapshot.UID)}
	if err := h.Client.Get(t.Context(), key, content); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	return content
}

// cuts are the VolumeSnapshots of the case.
func (h *hardy) cuts(t *testing.T) (mine []snapshotsv1.VolumeSnapshot) {
	t.Helper()
	var list snapshotsv1.VolumeSnapshotList
	if err := h.Client.List(t.Context(), &list, client.InNamespace(h.ns)); err != nil {
		t.Fatal(err)
	}
	for _, cut := range list.Items {
		if strings.HasPrefix(cut.Name, "vmsnapshot-"+string(h.snapshot.UID)) {
			mine = append(mine, cut)
		}
	}
	return mine
}

func (h *hardy) waitCuts(t *testing.T, what string, is func(*snapshotsv1.VolumeSnapshot) bool) {
	t.Helper()
	eventually(t, 30*time.Second, "the VolumeSnapshots are "+what, func() string {
		cuts := h.cuts(t)
		for i := range cuts {
			if !is(&cuts[i]) {
				return fmt.Sprintf("%s: %+v", cuts[i].Name, cuts[i].Status)
			}
		}
		if len(cuts) != len(written) {
			return fmt.Sprint("there are ", len(cuts))
		}
		return ""
	})
}

func (h *hardy) waitFrozen(t *testing.T) {
	t.Helper()
	eventually(t, 30*time.Second, "the guest is frozen", func() string {
		if is := h.vmi(t).Status.FSFreezeStatus; is != "frozen" {
			return "it is " + is
		}
		return ""
	})
}

// freezes waits a moment for the guest to be frozen. It is not when virt-controller was stopped before it had asked.
func (h *hardy) freezes(t *testing.T) bool {
	t.Helper()
	until := time.Now().Add(patience * 5 * time.Second)
	is := func() bool { return h.vmi(t).Status.FSFreezeStatus == "frozen" }
	often(t, "the guest is frozen, or nobody has asked", func() bool { return is() || time.Now().After(until) })
	return is()
}
