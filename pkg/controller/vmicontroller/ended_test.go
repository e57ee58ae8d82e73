package vmicontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A guest that was shut down with its pod, unseen by virt-handler, is to run again.
func TestPodEndedFromOutside(t *testing.T) {
	for message, want := range map[string]v1.VirtualMachineInstancePhase{
		`{"lifecycle":"LIFECYCLE_SHUTOFF","reason":"shutdown"}`:   v1.Succeeded,
		`{"lifecycle":"LIFECYCLE_SHUTOFF","reason":"terminated"}`: v1.Failed,
		``: v1.Succeeded,
	} {
		pod := testPod(ended(corev1.PodSucceeded, ""))
		pod.Status.ContainerStatuses[0].State.Terminated.Message = message
		step := Next(View{
			VMI: testVMI(t, v1.Running), Pods: []*corev1.Pod{pod},
			DeadSince: now.Add(-time.Minute), Now: now,
		})
		if step.Status.Phase != want {
			t.Errorf("%s: phase %s, want %s", message, step.Status.Phase, want)
		}
	}
}
