//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// What a guest writes to its serial console is the log of a container, on each node that it comes to, and the container
// keeps no pod alive when the guest has shut down.
func TestSerialConsoleLog(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t,
		newVM(ns, "logged", v1.RunStrategyManual, withUserData("#cloud-config\nuser: root\npassword: tiny\n"),
			func(vm *v1.VirtualMachine) {
				vm.Spec.Template.Spec.Domain.Devices.LogSerialConsole = ptr(true)
			}))
	c.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitLogin(t)
	log := func(pod string) string {
		text, err := c.Kube.CoreV1().Pods(ns).GetLogs(pod,
			&corev1.PodLogOptions{Container: "guest-console-log"}).DoRaw(t.Context())
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	has := func(pod, text string) {
		t.Helper()
		eventually(t, time.Minute, "the log of "+pod+" has "+text, func() string {
			if got := log(pod); !strings.Contains(got, text) {
				return instead(got)
			}
			return ""
		})
	}
	has(g.pod(t).Name, " is ready, address ") // the prompt is no whole line, and a log has those
	g.waitMigration(t, g.migrate(t, "away"), v1.MigrationSucceeded)
	pod := g.vmi(t).Status.MigrationState.TargetPod
	g.in(t, "sh", "-c", "echo said on the other node > /dev/ttyS0")
	has(pod, "said on the other node")

	// The guest's own shutdown ends the pod, and its last words are in the log. It waits until its agent has answered.
	g.in(t, "sh", "-c", "echo last words > /dev/ttyS0; { sleep 2; poweroff; } >/dev/null 2>&1 </dev/null &")
	g.waitPhase(t, time.Minute, v1.Succeeded)
	eventually(t, time.Minute, "the pod has ended", func() string {
		for _, p := range g.pods(t) {
			if p.Name == pod && p.Status.Phase != corev1.PodSucceeded {
				return string(p.Status.Phase)
			}
		}
		return ""
	})
	if got := log(pod); !strings.Contains(got, "last words") {
		t.Errorf("the log ends with %q", got[max(0, len(got)-200):])
	}
}
