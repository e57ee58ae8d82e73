//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// TestDashboard uses the dashboard in a terminal as a user does: look, choose, log in on the console and come back,
// move the guest and see it arrive, stop it, leave.
func TestDashboard(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	other := c.create(t, newVM(ns, "other", v1.RunStrategyHalted))
	g := c.create(t, newVM(ns, "guest", v1.RunStrategyAlways))
	g.waitPhase(t, 2*time.Minute, v1.Running)
	node := g.vmi(t).Status.NodeName

	command := fmt.Sprintf("LANG=C.UTF-8 %s --kubeconfig %s --context %s -n %s dashboard; echo exit=$?; cat",
		g.Bin("virtctl"), g.Kubeconfig, g.Name, ns)
	m := startTmux(t, 120, 30, command)
	shows := func(within time.Duration, what string, texts ...string) {
		t.Helper()
		eventually(t, within, "the dashboard shows "+what, func() string {
			screen := m.run("capture-pane", "-p")
			for _, text := range texts {
				if !strings.Contains(screen, text) {
					return fmt.Sprintf("no %q in\n%s", text, screen)
				}
			}
			return ""
		})
	}
	shows(time.Minute, "both machines", "VMs 2", "guest", other.name, "Stopped", "Running", node)

	// The top says how the cluster is; a page of lines is searched, and no letter of that is an action.
	shows(20*time.Second, "the cluster", "2/2 ready", "Kubernetes v")
	m.keys("y")
	shows(20*time.Second, "the YAML", "apiVersion: kubevirt.io/v1")
	m.keys("/", "runstrategy", "Enter")
	shows(20*time.Second, "the match", "1 of ")
	m.keys("1")
	shows(20*time.Second, "both machines again", "VMs 2", other.name, "Stopped")

	// A filter leaves one.
	m.keys("/", "gue", "Enter")
	shows(20*time.Second, "one machine", "VMs 1/2")

	// The console takes the terminal and gives it back.
	g.waitLogin(t)
	m.keys("c")
	shows(time.Minute, "the console", "Successfully connected to guest console")
	m.keys("Enter")
	shows(time.Minute, "the guest's prompt", "login:")
	m.keys("root", "Enter")
	shows(time.Minute, "the password's prompt", "Password:")
	m.keys("tiny", "Enter")
	shows(time.Minute, "the shell", "#")
	m.keys("echo $((6*7))-from-the-guest", "Enter")
	shows(time.Minute, "what the guest says", "42-from-the-guest")
	m.keys("C-]")
	shows(time.Minute, "the machines again", "VMs 1/2")

	// So does the console beside the events, in the same shell; every key is the guest's.
	m.keys("C")
	shows(time.Minute, "the console and the events", "Console, Ctrl-] leaves", "events", "42-from-the-guest", "Started")
	m.keys("echo $((6*8))-beside", "Enter")
	shows(time.Minute, "what the guest says", "48-beside")
	m.keys("C-]")
	shows(time.Minute, "the machines again", "VMs 1/2")

	// A log that is followed ends with an interrupt, and the dashboard does not.
	m.keys("l")
	// What the first console left on the terminal has the line before it, and is there before the log is.
	shows(time.Minute, "the log", "48-beside")
	m.keys("C-c")
	shows(time.Minute, "the machines again", "VMs 1/2")

	// What changes is there by itself.
	eventually(t, time.Minute, "the guest can be migrated", func() string {
		for _, condition := range g.vmi(t).Status.Conditions {
			if condition.Type == v1.VirtualMachineInstanceIsMigratable && condition.Status == "True" {
				return ""
			}
		}
		return "it cannot"
	})
	m.keys("m")
	shows(20*time.Second, "the question", "Migrate "+ns+"/guest? [y/N]")
	m.keys("y")
	m.keys("3")
	shows(2*time.Minute, "the migration's end", "Migrations 1", "Succeeded", node)
	m.keys("1")
	shows(20*time.Second, "the guest where it is now", g.vmi(t).Status.NodeName)
	if now := g.vmi(t).Status.NodeName; now == node {
		t.Errorf("the guest is still on %s", node)
	}

	// What disrupts is asked for, and is in the log as the command that does the same.
	m.keys("/", "guest", "Enter")
	shows(20*time.Second, "the guest alone", "VMs 1/2")
	m.keys("X")
	shows(20*time.Second, "the question", "Stop "+ns+"/guest? [y/N]")
	m.keys("y")
	shows(2*time.Minute, "the guest stopped", "Stopped")
	m.keys("L")
	shows(20*time.Second, "the log", "virtctl migrate guest --namespace "+ns, "virtctl stop guest --namespace "+ns,
		"done")

	m.keys("q")
	shows(20*time.Second, "that it has ended, and the terminal is itself again", "exit=0")
	if screen := m.run("capture-pane", "-p"); strings.Contains(screen, "VMs") {
		t.Errorf("the dashboard is still there:\n%s", screen)
	}
}
