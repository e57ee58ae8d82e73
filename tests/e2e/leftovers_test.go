//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// leavesNothing checks that a migration which is over has left nothing on either node: no sockets by which a guest moves, no
// connections between the virt-handlers, no volumes of pods in which the guest is not, and no pods beside the launchers.
func (f *faulty) leavesNothing(t *testing.T) {
	t.Helper()
	eventually(t, 60*time.Second, "nothing is left of migration "+f.m.Name, func() string {
		pods, err := f.Kube.CoreV1().Pods(f.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		guests, ended := "", []string{string(f.source.UID), string(f.target.UID)}
		for i := range pods.Items {
			pod := &pods.Items[i]
			switch uid := string(pod.UID); {
			case pod.Labels["kubevirt.io"] != names.VirtLauncher:
				return fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
			case pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil:
				guests = uid
			default:
				ended = append(ended, uid)
			}
		}
		for _, handler := range f.componentPods(t, names.VirtHandler) {
			for _, pid := range named(processes(t, string(handler.UID)), processServer) {
				if left := leftovers(t, pid, guests, ended); left != "" {
					return handler.Spec.NodeName + ": " + left
				}
			}
		}
		return ""
	})
}

// leftovers finds what a virt-handler and its node still have of a migration, when the guest is in one pod and has left others.
func leftovers(t *testing.T, handler int, guests string, ended []string) string {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", handler)
	for _, pid := range append(named(processes(t, guests), processLauncher), handler) {
		sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
		if err != nil {
			return err.Error() // it has ended a moment ago
		}
		for line := range strings.Lines(string(sockets)) {
			// Num RefCount Protocol Flags Type St Inode Path
			if fields := strings.Fields(line); len(fields) == 8 && strings.HasPrefix(filepath.Base(fields[7]), "migration-") {
				return "a socket " + fields[7]
			}
		}
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return err.Error()
	}
	for _, uid := range ended {
		if uid == "" || uid == guests {
			continue
		}
		for line := range strings.Lines(string(mounts)) {
			// ID parent device root mount point…
			if fields := strings.Fields(line); len(fields) > 4 && strings.Contains(fields[4], "/"+uid+"/") {
				return "mount " + fields[4]
			}
		}
		run := filepath.Join(proc, "root/pods", uid, "volumes/kubernetes.io~empty-dir", names.VolumeRun)
		if _, err := os.Lstat(run); err == nil {
			return "the volumes of pod " + uid
		}
	}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, table))
		if err != nil {
			return err.Error()
		}
		port := fmt.Sprintf(":%04X", names.PortMigration)
		for line := range strings.Lines(string(text)) {
			// sl local remote state…; state 1 is established.
			if fields := strings.Fields(line); len(fields) > 3 && fields[3] == "01" && (strings.HasSuffix(fields[1], port) || strings.HasSuffix(fields[2], port)) {
				return "a connection " + fields[1] + " to " + fields[2]
			}
		}
	}
	return ""
}
