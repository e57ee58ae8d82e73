//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A guest that is started paused executes nothing until it is unpaused; and what else is asked of a guest that runs.
func TestStartPaused(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "paused", v1.RunStrategyHalted))
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped)
	g.virtctl(t, nil, "-n", g.ns, "start", g.name, "--paused", "--wait", "--timeout", "2m")
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusPaused)
	first := g.vmi(t)
	if s := first.Spec.StartStrategy; s == nil || *s != v1.StartStrategyPaused || first.Status.Phase != v1.Running {
		t.Errorf("start strategy %v, phase %s", s, first.Status.Phase)
	}

	// Whoever marks it for leaving its node can be overruled.
	mark := client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"evacuationNodeName":"`+first.Status.NodeName+`"}}`))
	if err := c.Client.Status().Patch(t.Context(), first.DeepCopy(), mark); err != nil {
		t.Fatal(err)
	}
	g.virtctl(t, nil, "-n", g.ns, "evacuate-cancel", "vm", g.name)
	if node := g.vmi(t).Status.EvacuationNodeName; node != "" {
		t.Errorf("it is still to leave %s", node)
	}

	g.virtctl(t, nil, "-n", g.ns, "unpause", "vm", g.name, "--wait", "--timeout", "1m")
	g.waitLogin(t)
	con := g.openConsole(t, "")
	from := len(con.output())
	g.virtctl(t, nil, "-n", g.ns, "reset", g.name)
	con.expectFrom(t, from, bootTime, `login: `)
	if again := g.vmi(t); again == nil || again.UID != first.UID {
		t.Errorf("the reset changed the instance: %+v", again)
	}
	if _, stderr, err := g.Virtctl(t.Context(), nil, "-n", g.ns, "unpause", g.name); err == nil ||
		!strings.Contains(stderr, "is not paused") {
		t.Errorf("unpausing a guest that runs: error %v, stderr %q", err, stderr)
	}
}

// A snapshot of a guest that its user has paused is taken, and leaves it paused.
func TestSnapshotOfPausedVM(t *testing.T) {
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, countingVM(t, ns, "paused"))
	g.waitLogin(t)
	g.virtctl(t, nil, "-n", ns, "pause", g.name, "--wait", "--timeout", "1m")
	g.virtctl(t, nil, "-n", ns, "snapshot", "create", g.name, "one", "--partial", "--wait", "--timeout", "1m")
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusPaused)
	g.virtctl(t, nil, "-n", ns, "unpause", g.name, "--wait", "--timeout", "1m")
}
