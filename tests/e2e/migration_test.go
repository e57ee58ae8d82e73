//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/instance"
)

// counter writes increasing numbers to two disks, a block each, and remembers in memory how far it is.
const counter = `dev() { for d in /sys/block/vd*; do [ "$(cat $d/serial)" = $1 ] && echo /dev/${d##*/}; done; }
E=$(dev EMPTY); D=$(dev DATA); export E D
cat > /tmp/w <<'W'
i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); for d in $E $D; do echo $i | dd of=$d bs=512 seek=$i conv=sync,notrunc 2>/dev/null; done; echo $i > /tmp/i; sleep 0.1; done; sync; echo done > /tmp/stopped
W
sh /tmp/w &
`

// check ends the counter and counts the blocks that hold something else than they should.
const check = `touch /tmp/stop; while [ ! -e /tmp/stopped ]; do sleep 0.1; done; echo 3 > /proc/sys/vm/drop_caches; bad=0; n=1; while [ $n -le $(cat /tmp/i) ]; do for d in $E $D; do v=$(dd if=$d bs=512 skip=$n count=1 2>/dev/null | head -n1); [ "$v" = $n ] || bad=$((bad+1)); done; n=$((n+1)); done; echo bad $bad`

func withEmptyDisk() func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
			Name: "empty", Serial: "EMPTY", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		})
		spec.Volumes = append(spec.Volumes, v1.Volume{
			Name:         "empty",
			VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("16Mi")}},
		})
	}
}

// migrate makes a migration by hand.
func (g *guest) migrate(t *testing.T, name string) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	m := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.ns, Name: name},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: g.name},
	}
	if err := g.Client.Create(t.Context(), m); err != nil {
		t.Fatalf("create migration: %v", err)
	}
	return m
}

// waitMigration waits for the end of a migration; nil when it is gone.
func (g *guest) waitMigration(t *testing.T, m *v1.VirtualMachineInstanceMigration,
	want v1.VirtualMachineInstanceMigrationPhase,
) {
	t.Helper()
	target, stop := g.followTarget(t, m)
	defer stop()
	eventually(t, 90*time.Second, "migration "+m.Name+" is "+string(want), func() string {
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err.Error()
		}
		if m.Status.Phase == v1.MigrationFailed {
			target.say(t)
		}
		if m.Status.Phase == want {
			return ""
		}
		if state := m.Status.MigrationState; state != nil && m.Status.Phase == v1.MigrationFailed {
			return "failed: " + state.FailureReason
		}
		return "phase " + string(m.Status.Phase)
	})
}

// targetQEMU waits for the QEMU of a migration's target and sends it a signal.
func (g *guest) targetQEMU(t *testing.T, m *v1.VirtualMachineInstanceMigration, signal syscall.Signal) {
	t.Helper()
	eventually(t, 60*time.Second, "the target has a QEMU", func() string {
		for _, pod := range g.pods(t) {
			if pod.Labels[v1.MigrationJobLabel] != string(m.UID) {
				continue
			}
			found, err := instance.Processes(string(pod.UID))
			if err != nil {
				return err.Error()
			}
			for _, p := range found {
				if strings.HasPrefix(p.Command, "qemu-system") {
					if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
						return err.Error()
					}
					return ""
				}
			}
		}
		return "not yet"
	})
}

// onlyOn checks that the VMI is on a node and that no other pod of it is left running.
func (g *guest) onlyOn(t *testing.T, node string) {
	t.Helper()
	eventually(t, 60*time.Second, "one pod runs, on "+node, func() string {
		vmi := g.vmi(t)
		if vmi == nil || vmi.Status.NodeName != node || vmi.Labels[v1.NodeNameLabel] != node {
			return "the VMI is elsewhere"
		}
		running := 0
		for _, pod := range g.pods(t) {
			switch {
			case pod.Status.Phase == corev1.PodSucceeded && pod.DeletionTimestamp == nil:
			case pod.Spec.NodeName == node && pod.Status.Phase == corev1.PodRunning &&
				vmi.Status.ActivePods[pod.UID] == node:
				running++
				if ip := vmi.Status.Interfaces[0].IP; ip != pod.Status.PodIP {
					return fmt.Sprintf("the VMI's address is %s, its pod's %s", ip, pod.Status.PodIP)
				}
			default:
				return fmt.Sprintf("pod %s on %s is %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase)
			}
		}
		if running != 1 || len(vmi.Status.ActivePods) != 1 {
			return fmt.Sprintf("%d pods run, active are %v", running, vmi.Status.ActivePods)
		}
		return ""
	})
}

// tie has the VM name the node of its guest, none if empty, and waits until the instance has it and is, or is not,
// migratable.
func (g *guest) tie(t *testing.T, node string, migratable corev1.ConditionStatus) {
	t.Helper()
	var selector map[string]string
	if node != "" {
		selector = map[string]string{corev1.LabelHostname: node}
	}
	g.template(t, func(spec *v1.VirtualMachineInstanceSpec) { spec.NodeSelector = selector })
	eventually(t, 60*time.Second, "the instance is to be on node "+node, func() string {
		vmi := g.vmi(t)
		if !maps.Equal(vmi.Spec.NodeSelector, selector) {
			return fmt.Sprintf("its node selector is %v", vmi.Spec.NodeSelector)
		}
		for _, c := range vmi.Status.Conditions {
			if c.Type == v1.VirtualMachineInstanceIsMigratable && c.Status == migratable {
				return g.restartMessage(t)
			}
		}
		return fmt.Sprintf("its conditions are %+v", vmi.Status.Conditions)
	})
}

// A guest with disks of all kinds moves to the other node and back, stays where it is when a migration fails or is
// cancelled, and notices nothing of it.
func TestMigration(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	g := c.create(t,
		newVM(ns, "mover", v1.RunStrategyAlways, withClaim("data"), withEmptyDisk(),
			withUserData("#cloud-config\nuser: root\npassword: tiny\n")))
	g.waitLogin(t)
	home := g.vmi(t).Status.NodeName
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	for line := range strings.Lines(counter) {
		con.send(t, strings.TrimSuffix(line, "\n")+"\r")
	}
	con.run(t, "while [ ! -e /tmp/i ]; do sleep 0.1; done")

	service := g.serve(t)
	service.paused(t)

	// There, by the subresource.
	path := "/apis/subresources.kubevirt.io/v1/namespaces/" + ns + "/virtualmachines/" + g.name + "/migrate"
	dryRun := c.Kube.CoreV1().RESTClient().Put().AbsPath(path).Body([]byte(`{"dryRun":["All"]}`))
	if err := dryRun.Do(t.Context()).Error(); err != nil {
		t.Fatalf("migrate, dry run: %v", err)
	}
	if err := c.Kube.CoreV1().RESTClient().Put().AbsPath(path).Body([]byte(`{}`)).Do(t.Context()).Error(); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	if err := c.Kube.CoreV1().RESTClient().Put().AbsPath(path).Body([]byte(`{}`)).Do(t.Context()).Error(); err == nil ||
		!strings.Contains(err.Error(), "in-flight migration detected") {
		t.Errorf("a second migration at once: %v", err)
	}
	migrations := &v1.VirtualMachineInstanceMigrationList{}
	if err := c.Client.List(t.Context(), migrations, client.InNamespace(ns)); err != nil || len(migrations.Items) != 1 {
		t.Fatalf("%d migrations, %v", len(migrations.Items), err)
	}
	there := &migrations.Items[0]
	g.waitMigration(t, there, v1.MigrationSucceeded)
	away := g.vmi(t).Status.NodeName
	if away == home {
		t.Fatalf("the guest is still on %s", home)
	}
	g.onlyOn(t, away)
	select {
	case <-con.done:
	case <-time.After(patience * 30 * time.Second):
		t.Fatal("the console of the old node is still open")
	}
	var closed *websocket.CloseError
	if !errors.As(con.err, &closed) || closed.Code != websocket.CloseGoingAway {
		t.Errorf("the console of the old node ended with %v, want code 1001", con.err)
	}
	state := g.vmi(t).Status.MigrationState
	if state == nil || state.SourceNode != home || state.TargetNode != away || !state.Completed || state.Failed ||
		state.StartTimestamp == nil || state.EndTimestamp == nil ||
		state.MigrationUID != there.UID || state.Mode != v1.MigrationPreCopy || state.TargetNodeAddress == "" ||
		!state.TargetNodeDomainDetected {
		t.Errorf("migrationState %+v", state)
	}
	service.moved(t, state.SourcePod, state.TargetPod, away)
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusRunning)
	con = g.openConsole(t, "")
	con.send(t, "\r")
	con.expect(t, 30*time.Second, shellPrompt)

	// The target's QEMU dies: the guest stays.
	failed := g.migrate(t, "failing")
	g.targetQEMU(t, failed, syscall.SIGKILL)
	g.waitMigration(t, failed, v1.MigrationFailed)
	if state := failed.Status.MigrationState; state == nil || !state.Failed || state.FailureReason == "" {
		t.Errorf("migrationState of the failed migration %+v", state)
	}
	g.onlyOn(t, away)
	con.run(t, "echo still here")

	// The target does not answer, and the migration is cancelled.
	cancelled := g.migrate(t, "cancelled")
	g.targetQEMU(t, cancelled, syscall.SIGSTOP)
	if err := c.Client.Delete(t.Context(), cancelled); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "the cancelled migration is gone", func() string {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(cancelled), cancelled); err == nil {
			return "phase " + string(cancelled.Status.Phase)
		}
		return ""
	})
	g.onlyOn(t, away)
	if state := g.vmi(t).Status.MigrationState; !state.AbortRequested ||
		state.AbortStatus != v1.MigrationAbortSucceeded || !state.Failed {
		t.Errorf("migrationState of the cancelled migration %+v", state)
	}
	con.run(t, "echo still here")

	// And back, to the node that the VM names by now.
	g.tie(t, home, corev1.ConditionTrue)
	if g.vmi(t).Status.NodeName != away {
		t.Fatal("the guest has moved by itself")
	}
	back := g.migrate(t, "back")
	g.waitMigration(t, back, v1.MigrationSucceeded)
	g.onlyOn(t, home)
	selectors := map[string]map[string]string{}
	for _, pod := range g.pods(t) {
		selectors[pod.Name] = pod.Spec.NodeSelector
	}
	if selectors[back.Status.MigrationState.TargetPod][corev1.LabelHostname] != home {
		t.Errorf("the pods' node selectors are %v, the new pod is %s", selectors, back.Status.MigrationState.TargetPod)
	}
	g.tie(t, home, corev1.ConditionFalse)
	g.tie(t, "", corev1.ConditionTrue)
	state = g.vmi(t).Status.MigrationState
	service.moved(t, state.SourcePod, state.TargetPod, home)
	con = g.openConsole(t, "")
	con.send(t, "\r")
	con.expect(t, 30*time.Second, shellPrompt)
	if got := con.run(t, check); got != "bad 0" {
		t.Errorf("what the guest wrote: %s", got)
	}
	if phases := transitions(back); !slices.IsSorted(phases) ||
		phases[len(phases)-1] != slices.Index(order, v1.MigrationSucceeded) {
		t.Errorf("phases %+v", back.Status.PhaseTransitionTimestamps)
	}

	// The sixth that ends displaces the first, and the pod that the first has left.
	for i := range 3 {
		g.waitMigration(t, g.migrate(t, fmt.Sprintf("more-%d", i)), v1.MigrationSucceeded)
	}
	left := there.Status.MigrationState.SourcePod
	eventually(t, 60*time.Second, "the first migration is gone, with its pod", func() string {
		list := &v1.VirtualMachineInstanceMigrationList{}
		if err := c.Client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if list.Items[i].UID == there.UID || len(list.Items) != 5 {
				return fmt.Sprintf("%d are left, among them %s", len(list.Items), list.Items[i].Name)
			}
		}
		for _, pod := range g.pods(t) {
			if pod.Name == left {
				return "pod " + left + " is " + string(pod.Status.Phase)
			}
		}
		return ""
	})
}

// order is that of a migration's phases.
var order = []v1.VirtualMachineInstanceMigrationPhase{
	v1.MigrationPending, v1.MigrationScheduling, v1.MigrationScheduled, v1.MigrationPreparingTarget,
	v1.MigrationTargetReady,
	v1.MigrationRunning, v1.MigrationSucceeded,
}

func transitions(m *v1.VirtualMachineInstanceMigration) []int {
	var out []int
	for _, transition := range m.Status.PhaseTransitionTimestamps {
		out = append(out, slices.Index(order, transition.Phase))
	}
	return out
}
