//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/tests/instance"
)

// raced reports whether a boot that waitLogin saw fail is QEMU's race, and logs what shows it. A guest with one CPU
// never meets it.
func (g *guest) raced(t *testing.T, said string) bool {
	t.Helper()
	vmi := g.vmi(t)
	if vmi == nil || sizing.VCPUs(&vmi.Spec.Domain) < 2 {
		return false
	}
	for _, pod := range g.pods(t) {
		log, err := g.Kube.CoreV1().Pods(g.ns).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			t.Logf("log of %s: %v", pod.Name, err)
		}
		if found := tcgAssertion.Find(log); found != nil {
			t.Logf("%s: QEMU aborted: %s", pod.Name, found)
			return true
		}
		t.Logf("threads of %s: %s", pod.Name, threads(t, string(pod.UID)))
	}
	// What the firmware has written last is not the guest's.
	return strings.Contains(said, "its console has shown nothing") || strings.Contains(said, `is "BdsDxe: starting`)
}

// threads describes the threads of a pod's QEMU: name, state, the clock ticks that each has run, and where it waits.
func threads(t *testing.T, podUID string) string {
	t.Helper()
	found, err := instance.Processes(podUID)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range found {
		if !strings.HasPrefix(p.Command, "qemu-system") {
			continue
		}
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range stats {
			stat, err := os.ReadFile(name)
			if err != nil {
				continue // the thread has ended
			}
			comm, rest, _ := strings.Cut(string(stat), ") ")
			const utime = 11 // fields after the name, see proc_pid_stat(5)
			if f := strings.Fields(rest); len(f) > utime+1 {
				wchan, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "wchan")) // empty for one that has ended
				fmt.Fprintf(&all, "%s) %s user %s system %s %s; ", comm, f[0], f[utime], f[utime+1], wchan)
			}
		}
	}
	return all.String()
}
