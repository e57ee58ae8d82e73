//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/tests/instance"
)

// nodeGrace is how long a silent node stays Ready in the cluster of these tests.
const nodeGrace = 8 * time.Second

// lost bounds the time from a node's loss to its VMIs' phase Unknown; a new leader may have to be found meanwhile.
const lost = 60 * time.Second

// A guest writes numbers to a shared disk while its node is cut off and comes back, is cut off and given up, and
// loses its power. At no time does a second guest write, and what was written is there.
func TestNodeLoss(t *testing.T) { // not parallel: a cluster of its own, which must not be starved
	i, err := instance.Start(t.Context(), "e2e-loss", "--node-monitor-grace-period", nodeGrace.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := i.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &cluster{i}
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	g := &lossy{guest: c.create(t, newVM(ns, "keeper", v1.RunStrategyAlways, withClaim("data")))}
	g.waitLogin(t)
	g.count(t)

	g.cutAndHeal(t)
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
	con.run(t, `for d in /sys/block/vd*; do [ "$(cat $d/serial)" = DATA ] && D=/dev/${d##*/}; done; n() { dd if=$D bs=16 count=1 2>/dev/null | tr -dc 0-9; }`)
	first := g.number(t, con, "n")
	if first < g.written {
		t.Errorf("the disk has number %d, and had %d before", first, g.written)
	}
	con.run(t, `(i=$(n); i=${i:-0}; while :; do i=$((i+1)); echo "$i               " | dd of=$D bs=512 conv=sync,notrunc oflag=direct 2>/dev/null; echo $i > /tmp/j; mv /tmp/j /tmp/i; sleep 0.05; done) & while [ ! -s /tmp/i ]; do sleep 0.1; done`)
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
	if c := conditionOf(unknown, v1.VirtualMachineInstanceReady); c == nil || c.Status != corev1.ConditionFalse || c.Reason != "NodeUnresponsive" {
		t.Errorf("Ready of a lost VMI is %+v", c)
	}
	g.waitStatus(t, 20*time.Second, v1.VirtualMachineStatusUnknown)
	return vmi, pod
}

func conditionOf(vmi *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType) *v1.VirtualMachineInstanceCondition {
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
		lease, err := g.Kube.CoordinationV1().Leases("kubevirt").Get(t.Context(), "virt-controller", metav1.GetOptions{})
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
			if err := g.Kube.CoreV1().Pods("kubevirt").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
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

// cutAndGiveUp: somebody says that a node is off which is not. The disk's lock keeps the new guest away from it, and
// the old one is killed when the network is back.
func (g *lossy) cutAndGiveUp(t *testing.T) {
	before, pod := g.lose(t, "cut")
	name := g.pod(t).Name
	running := qemu(t, pod)
	if err := g.Kube.CoreV1().Pods(g.ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "a new guest finds its disk in use", func() string {
		now := g.vmi(t)
		if now == nil || now.UID == before.UID {
			return "there is no new one yet"
		}
		if now.Status.Phase == v1.Running {
			t.Fatal("two guests run on one disk")
		}
		if c := conditionOf(now, v1.VirtualMachineInstanceSynchronized); c == nil || !strings.Contains(c.Message, "in use") {
			return fmt.Sprintf("phase %s, Synchronized %+v", now.Status.Phase, c)
		}
		return ""
	})
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
	after := g.waitPhase(t, bootTime, v1.Running)
	if after.Status.NodeName == before.Status.NodeName {
		t.Errorf("the new guest is on %s, too", after.Status.NodeName)
	}
	g.waitLogin(t)
	g.count(t)
	g.look(t)
	g.waitSchedulable(t, before.Status.NodeName)
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
	g.taint(t, node, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
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
