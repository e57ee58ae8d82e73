//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// nodeGrace is how long a silent node stays Ready in the cluster of these tests.
const nodeGrace = 8 * time.Second

// lost bounds the time from a node's loss to its VMIs' phase Unknown; a new leader may have to be found meanwhile.
const lost = 60 * time.Second

// A guest writes numbers to a shared disk while its node is cut off and comes back, its pod is deleted with force, its
// node is cut off and given up, and loses its power. At no time does a second guest write, and what was written is
// there.
func TestNodeLoss(t *testing.T) { // not parallel: its cluster must not be starved
	c := ownCluster(t, "e2e-loss", "--node-monitor-grace-period", nodeGrace.String())
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	g := &lossy{guest: c.create(t, newVM(ns, "keeper", v1.RunStrategyAlways, withClaim("data")))}
	g.waitLogin(t)
	g.count(t)

	g.cutAndHeal(t)
	g.forceDelete(t)
	g.cutAndGiveUp(t)
	g.powerCut(t)
}

// lossy is a guest whose node goes. written is a number that its disk held at some time.
type lossy struct {
	*guest
	written int
}

// count makes the guest write increasing numbers, from the one on the disk.
func (g *lossy) count(t *testing.T) {
	t.Helper()
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.run(t,
		`for d in /sys/block/vd*; do [ "$(cat $d/serial)" = DATA ] && D=/dev/${d##*/}; done; n() { dd if=$D bs=16 count=1 2>/dev/null | tr -dc 0-9; }`)
	first := g.number(t, con, "n")
	if first < g.written {
		t.Errorf("the disk has number %d, and had %d before", first, g.written)
	}
	con.run(t,
		`(i=$(n); i=${i:-0}; while :; do i=$((i+1)); echo "$i               " | dd of=$D bs=512 conv=sync,notrunc oflag=direct 2>/dev/null; echo $i > /tmp/j; mv /tmp/j /tmp/i; sleep 0.05; done) & while [ ! -s /tmp/i ]; do sleep 0.1; done`)
}

// look remembers how far the guest is.
func (g *lossy) look(t *testing.T) {
	t.Helper()
	con := g.openConsole(t, "")
	con.send(t, "\r")
	con.expect(t, 60*time.Second, shellPrompt)
	now := g.number(t, con, "cat /tmp/i")
	if now <= g.written {
		t.Errorf("the guest is at number %d, and was at %d before", now, g.written)
	}
	g.written = now
}

func (g *lossy) number(t *testing.T, con *console, command string) int {
	t.Helper()
	text := con.run(t, command)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %q is no number", command, text)
	}
	return n
}

// qemu is the pid of a pod's QEMU on this machine, 0 when it has none.
func qemu(t *testing.T, pod types.UID) int {
	t.Helper()
	for _, p := range processes(t, string(pod)) {
		if strings.HasPrefix(p.Command, "qemu-system") {
			return p.PID
		}
	}
	return 0
}

func (g *lossy) node(t *testing.T, verb, node string) {
	t.Helper()
	if err := g.Node(t.Context(), verb, node); err != nil {
		t.Fatal(err)
	}
}

// lose has the guest's node fail in the given way, and waits until it counts as lost.
func (g *lossy) lose(t *testing.T, verb string) (vmi *v1.VirtualMachineInstance, pod types.UID) {
	t.Helper()
	vmi, pod = g.vmi(t), g.pod(t).UID
	g.leadElsewhere(t, vmi.Status.NodeName)
	begin := time.Now()
	g.node(t, verb, vmi.Status.NodeName)
	unknown := g.waitPhase(t, lost, v1.Unknown)
	t.Logf("%s of %s: Unknown after %.1f s", verb, vmi.Status.NodeName, time.Since(begin).Seconds())
	if c := conditionOf(unknown, v1.VirtualMachineInstanceReady); c == nil || c.Status != corev1.ConditionFalse ||
		c.Reason != "NodeUnresponsive" {
		t.Errorf("Ready of a lost VMI is %+v", c)
	}
	g.waitStatus(t, 20*time.Second, v1.VirtualMachineStatusUnknown)
	return vmi, pod
}

func conditionOf(vmi *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType,
) *v1.VirtualMachineInstanceCondition {
	for i := range vmi.Status.Conditions {
		if vmi.Status.Conditions[i].Type == kind {
			return &vmi.Status.Conditions[i]
		}
	}
	return nil
}

// leadElsewhere makes a virt-controller of another node lead, so that no time is lost with finding one.
func (g *lossy) leadElsewhere(t *testing.T, node string) {
	t.Helper()
	deleted := types.UID("")
	eventually(t, time.Minute, "virt-controller leads on another node than "+node, func() string {
		lease, err := g.Kube.CoordinationV1().Leases("kubevirt").Get(t.Context(), "virt-controller",
			metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return "nobody leads"
		}
		pod, err := g.Kube.CoreV1().Pods("kubevirt").Get(t.Context(), *lease.Spec.HolderIdentity, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return "the leader is gone"
		case err != nil:
			return err.Error()
		case pod.Spec.NodeName != node:
			return ""
		case pod.UID != deleted:
			deleted = pod.UID
			if err := g.Kube.CoreV1().Pods("kubevirt").Delete(t.Context(),
				pod.Name, metav1.DeleteOptions{}); err != nil {
				return err.Error()
			}
		}
		return "it leads on " + node
	})
}

// only checks that for a while there is no other pod and no other VMI than the lost ones.
func (g *lossy) only(t *testing.T, vmi *v1.VirtualMachineInstance, pod types.UID) {
	t.Helper()
	const long = 5 * time.Second
	begin := time.Now()
	eventually(t, 2*long, "a while passes", func() string {
		if now := g.vmi(t); now == nil || now.UID != vmi.UID || now.Status.Phase != v1.Unknown {
			t.Fatalf("the lost VMI became %+v", now)
		}
		if pods := g.pods(t); len(pods) != 1 || pods[0].UID != pod {
			t.Fatalf("%d pods, want the lost one", len(pods))
		}
		if time.Since(begin) < long {
			return "not over"
		}
		return ""
	})
}

// cutAndHeal: a node that comes back has its guest still.
func (g *lossy) cutAndHeal(t *testing.T) {
	before, pod := g.lose(t, "cut")
	g.only(t, before, pod)
	running := qemu(t, pod)
	if running == 0 {
		t.Fatal("the guest does not run on the node that is cut off")
	}
	begin := time.Now()
	g.node(t, "heal", before.Status.NodeName)
	after := g.waitPhase(t, 90*time.Second, v1.Running)
	t.Logf("healed: Running after %.1f s", time.Since(begin).Seconds())
	if after.UID != before.UID || qemu(t, pod) != running {
		t.Error("it is another guest")
	}
	g.waitSchedulable(t, before.Status.NodeName)
	g.look(t)
}

// waitSchedulable waits until VMs may come to a node again.
func (g *lossy) waitSchedulable(t *testing.T, name string) {
	t.Helper()
	eventually(t, 60*time.Second, "node "+name+" takes VMs", func() string {
		node, err := g.Kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return "it is not ready"
			}
		}
		if got := node.Labels[v1.NodeSchedulable]; got != "true" {
			return "schedulable is " + got
		}
		return ""
	})
}

// cutAndGiveUp: somebody deletes with force the pod of a node that is cut off. The guest runs on there, so that no
// other is started; it is killed when the network is back, and the VM starts anew.
func (g *lossy) cutAndGiveUp(t *testing.T) {
	before, pod := g.lose(t, "cut")
	running := qemu(t, pod)
	g.deleteWithForce(t)
	const patience = 20 * time.Second // longer than virt-handler may take to report an end
	g.untouched(t, before, patience)
	if got := qemu(t, pod); got != running || got == 0 {
		t.Fatalf("the guest that was cut off had pid %d and has %d", running, got)
	}
	begin := time.Now()
	g.node(t, "heal", before.Status.NodeName)
	eventually(t, 30*time.Second, "the guest that was given up is killed", func() string {
		if pid := qemu(t, pod); pid != 0 {
			return fmt.Sprintf("its QEMU runs, pid %d", pid)
		}
		return ""
	})
	t.Logf("healed: the old guest was gone after %.1f s", time.Since(begin).Seconds())
	// virt-handler, back, may say for a moment that the one which was given up runs: it does, until it is killed.
	eventually(t, bootTime, "the VM runs anew", func() string {
		switch now := g.vmi(t); {
		case now == nil || now.UID == before.UID:
			return "there is no new VMI"
		case now.Status.Phase != v1.Running:
			return "the new VMI is " + string(now.Status.Phase)
		}
		return ""
	})
	g.waitLogin(t)
	g.count(t)
	g.look(t)
	g.waitSchedulable(t, before.Status.NodeName)
}

// deleteWithForce removes the object of the guest's pod.
func (g *lossy) deleteWithForce(t *testing.T) {
	t.Helper()
	err := g.Kube.CoreV1().Pods(g.ns).Delete(t.Context(), g.pod(t).Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))})
	if err != nil {
		t.Fatal(err)
	}
}

// untouched checks that for a while a VMI whose pod was removed stays what it is, and says why.
func (g *lossy) untouched(t *testing.T, vmi *v1.VirtualMachineInstance, long time.Duration) {
	t.Helper()
	begin := time.Now()
	eventually(t, 2*long, "a while passes", func() string {
		now := g.vmi(t)
		if now == nil || now.UID != vmi.UID || now.IsFinal() || len(g.pods(t)) != 0 {
			t.Fatalf("a guest whose end nobody has seen was replaced: %+v", now)
		}
		if time.Since(begin) < long {
			return "not over"
		}
		if c := conditionOf(now, v1.VirtualMachineInstanceReady); c == nil || c.Reason != "EndNotConfirmed" {
			return fmt.Sprintf("Ready is %+v", c)
		}
		return ""
	})
}

// forceDelete: the pod of a node that is well is deleted with force while virt-handler there does nothing. The second
// guest starts after the first one's QEMU has ended, and no moment earlier.
func (g *lossy) forceDelete(t *testing.T) {
	before, pod := g.vmi(t), g.pod(t).UID
	handler := 0
	for _, component := range g.componentPods(t, names.VirtHandler) {
		if component.Spec.NodeName != before.Status.NodeName {
			continue
		}
		for _, p := range processes(t, string(component.UID)) {
			if p.Command == "virt-server" {
				handler = p.PID
			}
		}
	}
	if handler == 0 {
		t.Fatalf("no virt-handler on %s", before.Status.NodeName)
	}
	if err := syscall.Kill(handler, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() {
		if err := syscall.Kill(handler, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("continue virt-handler: %v", err)
		}
	}
	defer resume()
	g.deleteWithForce(t)
	resumed := false
	eventually(t, bootTime, "the VM runs anew", func() string {
		now, old := g.vmi(t), qemu(t, pod) // the process is looked at last
		switch {
		case now == nil || now.UID == before.UID:
			if old == 0 && !resumed { // its kubelet has ended it
				resume()
				resumed = true
			}
			return "there is no new one yet"
		case old != 0:
			t.Fatal("a second VMI was made while the first one's QEMU runs")
		case now.Status.Phase != v1.Running:
			return "phase " + string(now.Status.Phase)
		}
		return ""
	})
	g.waitLogin(t)
	g.count(t)
	g.look(t)
}

// powerCut: a node is off, and tainted by somebody who knows.
func (g *lossy) powerCut(t *testing.T) {
	before, pod := g.lose(t, "stop")
	if qemu(t, pod) != 0 {
		t.Fatal("the guest has survived its node")
	}
	node := before.Status.NodeName
	why, _, _ := g.Virtctl(t.Context(), nil, "-n", g.ns, "why", g.name) // its exit code says that something is wrong
	fence := "kubectl taint node " + node + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"
	if !strings.Contains(why, fence) {
		t.Errorf("why does not say %q:\n%s", fence, why)
	}
	g.only(t, before, pod)
	g.taint(t, node,
		corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	begin := time.Now()
	eventually(t, 90*time.Second, "the VM runs elsewhere", func() string {
		now := g.vmi(t)
		if now == nil || now.UID == before.UID || now.Status.Phase != v1.Running {
			return "not yet"
		}
		return ""
	})
	t.Logf("tainted: Running on another node after %.1f s", time.Since(begin).Seconds())
	g.waitLogin(t)
	g.count(t)
	g.look(t)
}

// taint adds a taint to a node.
func (g *lossy) taint(t *testing.T, name string, taint corev1.Taint) {
	t.Helper()
	eventually(t, 10*time.Second, "node "+name+" is tainted", func() string {
		node, err := g.Kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		node.Spec.Taints = append(node.Spec.Taints, taint)
		if _, err := g.Kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}
