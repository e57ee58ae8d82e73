//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/names"
)

// Every component is killed in turn while a VM runs. The guest's shell keeps a variable through it all, which proves
// that it is the same guest; the status never leaves Running. Not parallel: it disturbs every other test.
func TestKillComponents(t *testing.T) {
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "survivor", v1.RunStrategyAlways))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.run(t, "MEMORY=still-here")
	uid := g.vmi(t).UID
	address, dial := g.forwardedTo(t, 80, forward.TCP)

	check := func(t *testing.T) {
		t.Helper()
		vmi := g.vmi(t)
		if vmi == nil || vmi.UID != uid || vmi.Status.Phase != v1.Running {
			t.Fatalf("the instance did not survive: %+v", vmi)
		}
		con := g.openConsole(t, "")
		con.send(t, "\r")
		if got := con.run(t, "echo $MEMORY"); got != "still-here" {
			t.Fatalf("the guest is another: %q", got)
		}
	}
	ready := func(t *testing.T, component string, restartsBefore map[string]int32) {
		t.Helper()
		eventually(t, 2*time.Minute, component+" ready again", func() string {
			for _, pod := range c.componentPods(t, component) {
				for _, status := range pod.Status.ContainerStatuses {
					if !status.Ready {
						return pod.Name + " is not ready"
					}
					if before, ok := restartsBefore[pod.Name]; ok && status.RestartCount <= before {
						return pod.Name + " has not been restarted yet"
					}
				}
			}
			return ""
		})
	}
	for _, component := range []string{names.VirtController, names.VirtHandler, names.VirtAPI} {
		t.Run(component, func(t *testing.T) {
			restarts := map[string]int32{}
			forwarded := dial(t)
			for _, pod := range c.componentPods(t, component) {
				for _, status := range pod.Status.ContainerStatuses {
					restarts[pod.Name] = status.RestartCount
				}
				kill(t, string(pod.UID), "virt-server")
			}
			if component != names.VirtController {
				// What went through it is cut, and the local port stays.
				if err := broken(forwarded); err != nil {
					t.Error(err)
				}
			}
			if _, err := page(address, "/"); err != nil {
				t.Errorf("forwarded port: %v", err)
			}
			ready(t, component, restarts)
			eventually(t, 30*time.Second, "console works again", func() string {
				if _, stderr, err := c.Virtctl(t.Context(), nil,
					"-n", g.ns, "wait", g.name, "--for=running", "--timeout", "5s"); err != nil {
					return fmt.Sprint(err, stderr)
				}
				return ""
			})
			check(t)
		})
	}
	t.Run("sessions", func(t *testing.T) { g.loseSessions(t, ready) })
	t.Run("libvirtd", func(t *testing.T) {
		kill(t, string(g.pod(t).UID), "libvirtd")
		eventually(t, 30*time.Second, "libvirtd is back", func() string {
			for _, p := range processes(t, string(g.pod(t).UID)) {
				if p.Command == "libvirtd" {
					return ""
				}
			}
			return "not yet"
		})
		check(t)
		g.virtctl(t, nil, "-n", g.ns, "stop", g.name)
		g.waitGone(t, 60*time.Second)
	})
}

// The launcher is killed: the pod dies with it, the guest with the pod, and it is reported within 30 s.
func TestKillLauncher(t *testing.T) {
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "orphan", v1.RunStrategyOnce))
	g.waitPhase(t, bootTime, v1.Running)
	pod := g.pod(t)
	kill(t, string(pod.UID), "virt-launcher")
	g.waitPhase(t, 30*time.Second, v1.Failed)
	eventually(t, 10*time.Second, "no process of the pod is left", func() string {
		for _, p := range processes(t, string(pod.UID)) {
			if p.Command == "qemu-system-x86_64" || p.Command == "libvirtd" {
				return fmt.Sprintf("%v", p)
			}
		}
		return ""
	})
}
