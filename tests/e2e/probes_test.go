//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
)

// ready waits for the condition Ready of the VMI, with a reason.
func (g *guest) ready(t *testing.T, want corev1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, bootTime, fmt.Sprintf("%s is Ready %s", g.name, want), func() string {
		vmi := g.vmi(t)
		if vmi == nil {
			return "there is no vmi"
		}
		for _, c := range vmi.Status.Conditions {
			if c.Type == v1.VirtualMachineInstanceReady && c.Status == want && c.Reason == reason {
				return ""
			}
		}
		return fmt.Sprintf("conditions %+v", vmi.Status.Conditions)
	})
}

// A guest is Ready, and gets what comes for a Service, while its readiness probe passes, also on another node; one
// whose liveness probe fails is shut down, and says why.
func TestProbes(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	config := withNetworkData(c.eth0(t))
	// The agent and the web server have to be there before they are asked. After the migration it passes once more.
	const delay = int32(60)
	g := c.create(t, newVM(ns, "probed", v1.RunStrategyRerunOnFailure, config, func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.TerminationGracePeriodSeconds = ptr(int64(5))
		spec.Domain.Devices.Interfaces[0].Ports = []v1.Port{{Name: "web", Port: 80}}
		spec.ReadinessProbe = &v1.Probe{
			Handler:       v1.Handler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web"), Path: "/ready"}},
			PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 5,
		}
		spec.LivenessProbe = &v1.Probe{
			Handler:       v1.Handler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "! cat /tmp/dead >&2"}}},
			PeriodSeconds: 1, TimeoutSeconds: 10, InitialDelaySeconds: delay,
		}
	}))
	pinged := c.create(t, newVM(ns, "pinged", v1.RunStrategyAlways, config, func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.ReadinessProbe = &v1.Probe{
			Handler: v1.Handler{GuestAgentPing: &v1.GuestAgentPing{}}, PeriodSeconds: 1, TimeoutSeconds: 5,
		}
		spec.LivenessProbe = &v1.Probe{
			Handler:       v1.Handler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}},
			PeriodSeconds: 1, TimeoutSeconds: 10, InitialDelaySeconds: delay,
		}
	}))

	// A guest that is not Ready runs.
	g.waitPhase(t, bootTime, v1.Running)
	g.ready(t, corev1.ConditionFalse, "ContainersNotReady")
	g.in(t, "touch", "/www/ready")
	g.ready(t, corev1.ConditionTrue, "")
	service := g.serve(t)
	g.in(t, "rm", "/www/ready")
	g.ready(t, corev1.ConditionFalse, "ContainersNotReady")
	service.wait(t, 0)
	g.in(t, "touch", "/www/ready")
	service.wait(t, 1)
	eventually(t, time.Minute, "the VM is Ready", func() string {
		if !g.vm(t).Status.Ready {
			return "it is not"
		}
		return ""
	})

	// It moves, and is well on the other node.
	m := g.migrate(t, "away")
	g.waitMigration(t, m, v1.MigrationSucceeded)
	eventually(t, time.Minute, "the service leads to the other pod", func() string {
		to := g.vmi(t).Status.MigrationState.TargetPod
		seen := service.last()
		if now := seen[len(seen)-1].pods; len(now) != 1 || now[0] != to {
			return "it leads to " + strings.Join(now, ", ")
		}
		return ""
	})
	g.ready(t, corev1.ConditionTrue, "")

	if _, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "pause", g.name); err == nil ||
		!strings.Contains(stderr, "LivenessProbe") {
		t.Errorf("pause: %v %s", err, stderr)
	}

	// The agent goes on to answer, and so does the web server.
	pinged.ready(t, corev1.ConditionTrue, "")

	// It is not well any more.
	before := g.vmi(t)
	g.in(t, "sh", "-c", "echo why it is dead > /tmp/dead")
	eventually(t, 5*time.Minute, "the instance has failed, and another is there", func() string {
		vmi := g.vmi(t)
		if vmi == nil || vmi.UID == before.UID {
			return "not yet"
		}
		return ""
	})
	said := func(kind, reason, part string) {
		t.Helper()
		what := fmt.Sprintf("event %s of a %s says %q", reason, kind, part)
		eventually(t, 30*time.Second, what, func() string { // events are written beside all else
			events, err := c.Kube.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			for _, e := range events.Items {
				if e.InvolvedObject.Kind == kind && e.Reason == reason && strings.Contains(e.Message, part) {
					return ""
				}
			}
			return fmt.Sprintf("%d events say something else", len(events.Items))
		})
	}
	said("VirtualMachineInstance", "Stopped", "liveness probe failed")
	said("Pod", "Unhealthy", "why it is dead")
	if phase := pinged.vmi(t).Status.Phase; phase != v1.Running {
		t.Errorf("the other guest is %s", phase)
	}
}
