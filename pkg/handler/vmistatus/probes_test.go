package vmistatus

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// The condition Ready follows the readiness probe of a VMI that has one.
func TestReadiness(t *testing.T) {
	for name, tc := range map[string]struct {
		probe *v1.Probe
		ready corev1.ConditionStatus // of the pod's containers
		want  corev1.ConditionStatus
	}{
		"no probe":  {nil, corev1.ConditionFalse, corev1.ConditionTrue},
		"not asked": {&v1.Probe{}, "", corev1.ConditionFalse},
		"fails":     {&v1.Probe{}, corev1.ConditionFalse, corev1.ConditionFalse},
		"passes":    {&v1.Probe{}, corev1.ConditionTrue, corev1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{VMI: vmiOf(t, migratingVMI), Pod: pod(), Guest: guest(nil), Plan: plan(), Now: now}
			in.VMI.Spec.ReadinessProbe = tc.probe
			in.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: tc.ready}}
			for _, c := range Next(in).Conditions {
				if c.Type == v1.VirtualMachineInstanceReady &&
					(c.Status != tc.want || c.Status == corev1.ConditionFalse && c.Reason != ReasonNotReady) {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// A guest that the kubelet has ended for its liveness probe has failed, and it says why.
func TestLiveness(t *testing.T) {
	in := Input{VMI: vmiOf(t, migratingVMI), Pod: pod(), Now: now, Plan: plan()}
	in.VMI.Spec.LivenessProbe = &v1.Probe{}
	in.Guest = &launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, Reason: names.ReasonTerminated}
	if next := Next(in); next.Phase != v1.Failed || next.Reason != ReasonNotAlive ||
		!strings.Contains(message(next.Conditions, v1.VirtualMachineInstanceReady), "liveness probe") {
		t.Errorf("%s %s %+v", next.Phase, next.Reason, next.Conditions)
	}
	in.Pod.DeletionTimestamp = &metav1.Time{Time: now}
	if next := Next(in); next.Reason != ReasonPodEnded {
		t.Errorf("a pod that is deleted: %s", next.Reason)
	}
}
