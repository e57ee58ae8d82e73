//go:build integration

package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// The pod of a session of guestfs that has ended, and that its client has left behind, is deleted.
func TestGuestfs(tt *testing.T) {
	t := newTest(tt)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.namespace, Name: "libguestfs-tools-disk",
			Labels: map[string]string{names.LabelComponent: names.VirtGuestfs},
		},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    []corev1.Container{{Name: "libguestfs", Image: "none"}},
		},
	}
	t.must(cluster.Client.Create(t.ctx, pod))
	t.must(cluster.Bind(t.ctx, pod, "node01"))
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodSucceeded
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "libguestfs",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				FinishedAt: metav1.NewTime(time.Now().Add(-time.Hour)),
			}},
		}}
	}))
	t.waitGone(pod)
}
