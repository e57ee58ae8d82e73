//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/guests"
)

// victims are what fails, or comes between.
func (h *hardy) victims() map[string]func(*testing.T) {
	nothing := func(*testing.T) {}
	guest := func(command string) func(*testing.T) {
		return func(t *testing.T) {
			h.forgetCrashes(t)
			kill(t, string(h.source.UID), command)
			// Else it might be seen to write once more, and to end in the next case.
			eventually(t, 30*time.Second, "the guest has ended", func() string {
				if left := named(processes(t, string(h.source.UID)), processQEMU); len(left) > 0 {
					return fmt.Sprint("QEMU is there: ", left)
				}
				return ""
			})
		}
	}
	return map[string]func(*testing.T){
		"nothing":               nothing,
		"agent hangs":           h.pausedInstead,
		"agent freezes nothing": h.pausedInstead,
		"controller":            func(t *testing.T) { h.killComponent(t, names.VirtController, "") },
		"handler":               func(t *testing.T) { h.killComponent(t, names.VirtHandler, h.from) },
		"api":                   func(t *testing.T) { h.killComponent(t, names.VirtAPI, "") },
		"csi controller":        func(t *testing.T) { h.killProgram(t, "csi-controller", "") },
		"csi node":              func(t *testing.T) { h.killProgram(t, "csi-node", h.from) },
		"control plane":         h.killControlPlane,
		"agent":                 h.killAgent,
		"launcher":              guest(processLauncher),
		"QEMU":                  guest(processQEMU),
		"controller away":       h.goesOnAlone,
		"both away":             h.goesOnByItself,
		"restart": func(t *testing.T) {
			h.forgetCrashes(t)
			kill(t, string(h.source.UID), processQEMU)
			h.goesOn(t) // before the stage goes on
		},
		"deadline": func(t *testing.T) { h.settledSnapshot(t, failed) },
		"cancel":   h.cancel,
		"second":   h.second,
		"change":   h.change,
		"migrate":  func(t *testing.T) { h.migrate(t, fmt.Sprintf("amid-%d", h.n)) },
		"start":    h.mayNotStart,
		"cut gone": h.loseCut,
		"snapshot gone": func(t *testing.T) {
			h.loseBase(t)
			h.settledRestore(t, failed)
		},

		"name taken": h.takeName,
		"delete VM": func(t *testing.T) {
			if err := h.Client.Delete(t.Context(), h.vm(t)); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// plugBroken plugs in a third volume of which no snapshot can be made, until the case is over.
func (h *hardy) plugBroken(t *testing.T) {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", h.ns, h.n)},
		Provisioner: "csi.virt-local.virtkit.io", Parameters: map[string]string{"faults": "CreateSnapshot=fail"},
	}
	if err := h.Client.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	claim := guests.NewClaim(h.ns, class.Name, corev1.PersistentVolumeBlock)
	claim.Spec.StorageClassName = &class.Name
	if err := h.Client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	h.before[claim.Name] = true
	h.virtctl(t, nil, "-n", h.ns, "addvolume", h.name, "--volume-name="+claim.Name, "--wait", "--timeout=90s")
	h.unplug = func() {
		h.virtctl(t, nil, "-n", h.ns, "removevolume", h.name, "--volume-name="+claim.Name, "--wait", "--timeout=90s")
		for _, object := range []client.Object{claim, class} {
			if err := h.Client.Delete(t.Context(), object); err != nil {
				t.Error(err)
			}
		}
		h.unplug = nil
	}
}

// liar takes the place of the guest's agent, which nobody starts again. It answers each question, freezes nothing, and
// says that it has.
const liar = `A=$(pidof qemu-ga); L=$(awk '/PPid/{print $2}' /proc/$A/status); echo $L >/tmp/loop; ` +
	`kill -STOP $L; kill -9 $A; (exec 3<>/dev/virtio-ports/org.qemu.guest_agent.0; ` +
	`while read -r l <&3; do case "$l" in ` +
	`*guest-sync*) echo "{\"return\": $(echo "$l" | sed 's/.*"id" *: *\([0-9]*\).*/\1/')}" >&3;; ` +
	`*fsfreeze-status*) echo '{"return": "thawed"}' >&3;; ` +
	`*) echo '{"return": 0}' >&3;; esac; done) >/dev/null 2>&1 & echo $! >/tmp/liar`

// honest puts the agent back.
const honest = `kill $(cat /tmp/liar); kill -CONT $(cat /tmp/loop)`

// agent changes the guest's agent by the console, until the case is over.
func (h *hardy) agent(t *testing.T, change, back string) {
	t.Helper()
	con := h.shell(t, "")
	con.run(t, change)
	h.undo = append(h.undo, func() {
		con.run(t, back)
		con.logOut(t)
	})
}

// killAgent kills the guest's agent by the console.
func (h *hardy) killAgent(t *testing.T) {
	t.Helper()
	con := h.shell(t, "")
	con.run(t, "kill -9 $(pidof qemu-ga)")
	con.logOut(t)
}

// goesOnAlone waits until the guest goes on although virt-controller stands still: virt-handler lets it go.
func (h *hardy) goesOnAlone(t *testing.T) {
	t.Helper()
	if h.stage == "made" {
		h.stopControllers(t)
	}
	h.goesOn(t)
	if by := h.thawedBy(t); by != names.VirtHandler {
		t.Errorf("the guest was let go by %q, and not by virt-handler", by)
	}
}

// goesOnByItself waits until the guest goes on although virt-controller and virt-handler stand still: its launcher lets
// it go.
func (h *hardy) goesOnByItself(t *testing.T) {
	t.Helper()
	h.freeze(t, h.process(t, h.handler(t, h.from), processServer))
	h.writes(t)
	if by := h.thawedBy(t); by != names.VirtLauncher {
		t.Errorf("the guest was let go by %q, and not by its launcher", by)
	}
}

// thawedBy is who says that it has let the guest go since the case began, virt-handler or the launcher.
func (h *hardy) thawedBy(t *testing.T) (who string) {
	t.Helper()
	for component, pod := range map[string]*corev1.Pod{
		names.VirtHandler: h.handler(t, h.from), names.VirtLauncher: &h.source,
	} {
		log, err := h.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
			Container: pod.Spec.Containers[0].Name, SinceTime: &h.snapshot.CreationTimestamp,
		}).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "nobody has unfrozen the guest in time") &&
				(component == names.VirtLauncher || strings.Contains(line, h.key().String())) {
				who += component
				break
			}
		}
	}
	return who
}

// pausedInstead waits for the snapshot of a guest whose agent hangs, or says that it has frozen what it has not: the
// guest was paused, for all of the time that the volumes took.
func (h *hardy) pausedInstead(t *testing.T) {
	t.Helper()
	h.settledSnapshot(t, done)
	h.quiesced(t, snapshotv1beta1.VMSnapshotNoGuestAgentIndication, snapshotv1beta1.VMSnapshotOnlineSnapshotIndication,
		snapshotv1beta1.VMSnapshotPausedIndication)
}

// byAgent checks that the agent froze the guest, which the stages of a frozen guest have seen. When the guest ended
// amid it, the next one may have written before all volumes were cut.
func (h *hardy) byAgent(t *testing.T, victim string) {
	t.Helper()
	want := []snapshotv1beta1.Indication{
		snapshotv1beta1.VMSnapshotGuestAgentIndication, snapshotv1beta1.VMSnapshotOnlineSnapshotIndication,
	}
	ends := slices.Contains([]string{"launcher", "QEMU", "restart"}, victim)
	if ends && slices.Contains(indications(h.snapshot), snapshotv1beta1.VMSnapshotQuiesceTimeoutIndication) {
		want = append(want, snapshotv1beta1.VMSnapshotQuiesceTimeoutIndication)
	}
	h.quiesced(t, want...)
}

// quiesced checks all that the snapshot says of its guest.
func (h *hardy) quiesced(t *testing.T, want ...snapshotv1beta1.Indication) {
	t.Helper()
	if said := indications(h.snapshot); !slices.Equal(said, want) {
		t.Errorf("%s has the indications %v, and not %v", h.snapshot.Name, said, want)
	}
}

// cancel deletes the snapshot, the restore or the clone.
func (h *hardy) cancel(t *testing.T) {
	t.Helper()
	var object client.Object = h.snapshot
	switch {
	case h.restore != nil:
		object = h.restore
	case h.clone != nil:
		object = h.clone
	}
	if err := h.Client.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// second takes another snapshot of the VM, which waits for the first one.
func (h *hardy) second(t *testing.T) {
	t.Helper()
	first := h.snapshot
	h.snapshot = &snapshotv1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: first.Name + "-second"}, Spec: first.Spec,
	}
	h.take(t)
	eventually(t, 30*time.Second, "the second one waits", func() string {
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.snapshot), h.snapshot); err != nil {
			return err.Error()
		}
		if s := h.snapshot.Status; s == nil ||
			!strings.Contains(fmt.Sprintf("%+v", s.Conditions), `snapshot "`+first.Name+`" in progress`) {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// change tries what would make the machine another one while it is snapshotted.
func (h *hardy) change(t *testing.T) {
	t.Helper()
	h.claim(t, h.ns, fmt.Sprintf("late-%d", h.n), "Block")
	h.before[fmt.Sprintf("late-%d", h.n)] = true
	for _, args := range [][]string{
		{"addvolume", h.name, fmt.Sprintf("--volume-name=late-%d", h.n)},
		{"stop", h.name},
	} {
		stdout, stderr, err := h.Virtctl(t.Context(), nil, append([]string{"-n", h.ns}, args...)...)
		t.Logf("virtctl %v: %v %s%s", args, err, stdout, stderr)
		if err == nil {
			t.Errorf("virtctl %v is not refused", args)
		}
	}
}

// mayNotStart starts the VM that is being restored.
func (h *hardy) mayNotStart(t *testing.T) {
	t.Helper()
	stdout, stderr, err := h.Virtctl(t.Context(), nil, "-n", h.ns, "start", h.name)
	if err == nil {
		t.Errorf("start is not refused: %s%s", stdout, stderr)
	}
	if vmi := h.vmi(t); vmi != nil {
		t.Errorf("it has started: %s", vmi.Status.Phase)
	}
}

// settledSnapshot waits for the snapshot's end.
func (h *hardy) settledSnapshot(t *testing.T, want end) {
	t.Helper()
	eventually(t, bootTime, "the snapshot "+string(want), func() string {
		err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.snapshot), h.snapshot)
		switch {
		case apierrors.IsNotFound(err):
			if want == gone {
				return ""
			}
			t.Fatal("the snapshot is gone")
		case err != nil:
			return err.Error()
		}
		s := h.snapshot.Status
		switch {
		case s == nil || want == gone:
		case want != failed && s.Phase == snapshotv1beta1.Succeeded && s.ReadyToUse != nil && *s.ReadyToUse:
			return ""
		case want != done && s.Phase == snapshotv1beta1.Failed:
			return ""
		case s.Phase == snapshotv1beta1.Failed, want == failed && s.Phase == snapshotv1beta1.Succeeded:
			t.Fatalf("the snapshot is %s: %+v", s.Phase, s.Conditions)
		}
		return fmt.Sprintf("%+v", s)
	})
}

// forget deletes the case's snapshots, after which nothing is left of them.
func (h *hardy) forget(t *testing.T) {
	t.Helper()
	for _, snapshot := range h.snapshots(t) {
		if snapshot.Name == baseName {
			continue
		}
		if err := h.Client.Delete(t.Context(), &snapshot); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 60*time.Second, "nothing is left of the snapshot", func() string {
		for _, snapshot := range h.snapshots(t) {
			if snapshot.Name != baseName {
				return "snapshot " + snapshot.Name + " is there"
			}
		}
		vm := &v1.VirtualMachine{}
		if err := h.Client.Get(t.Context(), h.key(), vm); apierrors.IsNotFound(err) {
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		} else if err != nil {
			return err.Error()
		}
		return h.leaks(t, vm)
	})
	if h.unplug != nil {
		h.unplug()
	}
}

// claims are the names of the namespace's.
func (h *hardy) claims(t *testing.T) map[string]bool {
	t.Helper()
	list, err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for i := range list.Items {
		found[list.Items[i].Name] = true
	}
	return found
}
