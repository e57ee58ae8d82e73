//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Stopping presses the guest's power button and the guest goes by itself; starting again gives a new instance.
func TestStopIsGraceful(t *testing.T) {
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "graceful", v1.RunStrategyManual))
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped)

	g.virtctl(t, nil, "-n", g.ns, "start", g.name)
	g.waitLogin(t)
	first := g.vmi(t).UID
	con := g.openConsole(t, "")
	g.virtctl(t, nil, "-n", g.ns, "stop", g.name)
	con.expect(t, 20*time.Second, `power button`)
	g.waitStatus(t, 30*time.Second, v1.VirtualMachineStatusStopped)
	g.waitGone(t, 10*time.Second)

	g.virtctl(t, nil, "-n", g.ns, "start", g.name)
	g.waitLogin(t)
	if second := g.vmi(t).UID; second == first {
		t.Errorf("the instance %s is the one from before the stop", second)
	}
	if _, stderr, err := g.Virtctl(t.Context(), nil, "-n", g.ns, "start", g.name); err == nil ||
		!strings.Contains(stderr, "running") {
		t.Errorf("starting a running VM: error %v, stderr %q", err, stderr)
	}
}

// A guest that ignores the power button is powered off at the end of the grace period.
func TestStopForced(t *testing.T) {
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "stubborn", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr(int64(3))
	}))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.run(t, "rm -r /etc/acpi/*") // what acpid would run
	start := time.Now()
	g.virtctl(t, nil, "-n", g.ns, "stop", g.name)
	g.waitStatus(t, 20*time.Second, v1.VirtualMachineStatusStopped)
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("the guest was gone after %v, before its grace period of 3s: it did not ignore the button", took)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "restart", v1.RunStrategyAlways))
	g.waitLogin(t)
	first := g.vmi(t).UID
	g.virtctl(t, nil, "-n", g.ns, "restart", g.name)
	eventually(t, bootTime, "a new instance runs", func() string {
		vmi := g.vmi(t)
		if vmi == nil || vmi.UID == first || vmi.Status.Phase != v1.Running {
			return "not yet"
		}
		return ""
	})
	g.waitLogin(t)

	// A reboot from inside keeps the instance and its pod.
	second := g.vmi(t).UID
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.send(t, "reboot\r")
	from := len(con.output())
	con.expectFrom(t, from, bootTime, `login: `)
	if after := g.vmi(t); after == nil || after.UID != second || after.Status.Phase != v1.Running {
		t.Errorf("a reboot inside the guest changed the instance: %+v", after)
	}
}

// QEMU dies under each run strategy: the VMI fails, and the strategy decides what follows.
func TestCrashUnderRunStrategies(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	for _, test := range []struct {
		strategy v1.VirtualMachineRunStrategy
		restarts bool
	}{
		{v1.RunStrategyAlways, true},
		{v1.RunStrategyRerunOnFailure, true},
		{v1.RunStrategyManual, false},
		{v1.RunStrategyOnce, false},
	} {
		t.Run(string(test.strategy), func(t *testing.T) {
			c := theCluster
			g := c.create(t, newVM(c.namespace(t, "restricted"), "crash", test.strategy))
			if test.strategy == v1.RunStrategyManual {
				g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped)
				g.virtctl(t, nil, "-n", g.ns, "start", g.name)
			}
			first := g.waitPhase(t, bootTime, v1.Running)
			kill(t, string(g.pod(t).UID), "qemu-system-x86_64")
			if test.restarts {
				eventually(t, bootTime, "a new instance runs", func() string {
					if vmi := g.vmi(t); vmi == nil || vmi.UID == first.UID || vmi.Status.Phase != v1.Running {
						return "not yet"
					}
					return ""
				})
				return
			}
			eventually(t, 30*time.Second, "the instance has failed", func() string {
				vmi := g.vmi(t)
				if vmi == nil || vmi.Status.Phase == v1.Failed {
					return ""
				}
				return fmt.Sprintf("phase is %q", vmi.Status.Phase)
			})
			g.waitStatus(t, 30*time.Second, v1.VirtualMachineStatusStopped)
			if vmi := g.vmi(t); vmi != nil && vmi.UID != first.UID {
				t.Errorf("run strategy %s started a new instance after a crash", test.strategy)
			}
		})
	}
}

// A guest that powers itself off under RerunOnFailure is not started again, and its instance goes.
func TestPowerOffFromInside(t *testing.T) {
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "poweroff", v1.RunStrategyRerunOnFailure))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.send(t, "poweroff\r")
	g.waitStatus(t, 30*time.Second, v1.VirtualMachineStatusStopped)
	g.waitGone(t, 30*time.Second)
}

// Deleting works in every phase and leaves nothing behind.
func TestDeleteDuringEveryPhase(t *testing.T) {
	t.Parallel()
	for _, phase := range []v1.VirtualMachineInstancePhase{
		v1.VmPhaseUnset, v1.Pending, v1.Scheduling, v1.Scheduled, v1.Running,
	} {
		t.Run("phase="+string(phase), func(t *testing.T) {
			c := theCluster
			vm := newVM(c.namespace(t, "restricted"), "short", v1.RunStrategyAlways)
			vm.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr(int64(0))
			g := c.create(t, vm)
			if phase != v1.VmPhaseUnset {
				order := []v1.VirtualMachineInstancePhase{v1.Pending, v1.Scheduling, v1.Scheduled, v1.Running}
				for len(order) > 0 && order[0] != phase {
					order = order[1:]
				}
				g.waitPhase(t, bootTime, order...)
			}
			if err := c.Client.Delete(t.Context(), vm); err != nil {
				t.Fatal(err)
			}
			g.waitGone(t, 30*time.Second)
			eventually(t, 10*time.Second, "vm gone", func() string {
				if err := c.Client.Get(t.Context(), g.key(), &v1.VirtualMachine{}); !apierrors.IsNotFound(err) {
					return fmt.Sprintf("get vm: %v", err)
				}
				return ""
			})
		})
	}
}

// The pod is deleted under the VM, as a drain does: the guest is shut down with it, and the run strategies
// that want a VM to run bring another.
func TestDeletePod(t *testing.T) {
	t.Parallel()
	for _, strategy := range []v1.VirtualMachineRunStrategy{v1.RunStrategyAlways, v1.RunStrategyRerunOnFailure} {
		t.Run(string(strategy), func(t *testing.T) { testDeletePod(t, strategy) })
	}
}

func testDeletePod(t *testing.T, strategy v1.VirtualMachineRunStrategy) {
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "podless", strategy))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	first, pod := g.vmi(t).UID, g.pod(t)
	if err := c.Client.Delete(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	con.expect(t, 20*time.Second, `power button`)
	eventually(t, bootTime, "a new instance runs", func() string {
		if vmi := g.vmi(t); vmi == nil || vmi.UID == first || vmi.Status.Phase != v1.Running {
			return "not yet"
		}
		return ""
	})
	if left := processes(t, string(pod.UID)); len(left) > 0 {
		t.Errorf("processes of the deleted pod still run: %v", left)
	}
}

// A change of the run strategy is followed while the VM runs.
func TestRunStrategyHalted(t *testing.T) {
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "halt", v1.RunStrategyAlways))
	g.waitPhase(t, bootTime, v1.Running)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Halted"}}`))
	if err := c.Client.Patch(t.Context(), g.vm(t), patch); err != nil {
		t.Fatal(err)
	}
	g.waitGone(t, bootTime)
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped)
}

// --force does not wait for a guest that would take its time.
func TestForce(t *testing.T) {
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "force", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr(int64(600))
	}))
	// The firmware is still at work and hears no power button.
	first := g.waitPhase(t, bootTime, v1.Running)
	g.virtctl(t, nil, "-n", g.ns, "restart", g.name, "--force", "--grace-period", "0")
	eventually(t, bootTime, "a new instance runs", func() string {
		if vmi := g.vmi(t); vmi == nil || vmi.UID == first.UID || vmi.Status.Phase != v1.Running {
			return "not yet"
		}
		return ""
	})
	g.virtctl(t, nil, "-n", g.ns, "stop", g.name, "--force", "--grace-period", "0")
	g.waitGone(t, 30*time.Second)
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped)
}
