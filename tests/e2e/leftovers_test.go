//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/guests"
)

// leavesNothing checks that a migration which is over has left nothing on either node: no sockets by which a guest
// moves, no connections between the virt-handlers, no volumes of pods in which the guest is not, and no pods beside the
// launchers.
func (f *faulty) leavesNothing(t *testing.T) {
	t.Helper()
	eventually(t, 60*time.Second, "nothing is left of migration "+f.m.Name, func() string {
		pods, err := f.Kube.CoreV1().Pods(f.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		current, ended := "", []string{string(f.source.UID), string(f.target.UID)}
		for i := range pods.Items {
			pod := &pods.Items[i]
			switch uid := string(pod.UID); {
			case pod.Labels["kubevirt.io"] != names.VirtLauncher:
				return fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
			case pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil:
				current = uid
			default:
				ended = append(ended, uid)
			}
		}
		for _, handler := range f.componentPods(t, names.VirtHandler) {
			for _, pid := range named(processes(t, string(handler.UID)), processServer) {
				if left := guests.Leftovers(pid, named(processes(t, current), processLauncher),
					current, ended); left != "" {
					return handler.Spec.NodeName + ": " + left
				}
			}
		}
		return ""
	})
}
