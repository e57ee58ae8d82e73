package life

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestComponent(t *testing.T) {
	pod := func(name, component string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubevirt.io": component}},
			Status:     corev1.PodStatus{Phase: phase},
		}
	}
	leaves := pod("leaves", "virt-api", corev1.PodRunning)
	leaves.DeletionTimestamp = &metav1.Time{}
	var got []string
	for _, p := range Component([]corev1.Pod{
		pod("other", "virt-controller", corev1.PodRunning), pod("runs", "virt-api", corev1.PodRunning), leaves,
		pod("evicted", "virt-api", corev1.PodFailed), pod("starts", "virt-api", corev1.PodPending),
	}, "virt-api") {
		got = append(got, p.Name)
	}
	if want := []string{"runs", "starts"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPodHealth(t *testing.T) {
	waiting := func(reason, message string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}},
		}
	}
	ended := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason}}},
		}
	}
	condition := func(
		kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string,
	) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: kind, Status: status, Reason: reason, Message: message}}
	}
	isReady := condition(corev1.PodReady, corev1.ConditionTrue, "", "")
	for name, test := range map[string]struct {
		status         corev1.PodStatus
		deleted, ready bool
		fault, trouble string
	}{
		"ready": {
			status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: isReady}, ready: true,
			trouble: "phase Running",
		},
		"ready, is being deleted": {
			status:  corev1.PodStatus{Phase: corev1.PodRunning, Conditions: isReady},
			deleted: true, trouble: "phase Running",
		},
		"evicted": {status: corev1.PodStatus{Phase: corev1.PodFailed, Conditions: isReady}, trouble: "phase Failed"},
		"new":     {trouble: "phase unknown"},
		"fails its probe": {
			status: corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: condition(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady", "not ready: [x]"),
			}, trouble: "not ready: [x]",
		},
		"crashes": {
			status: corev1.PodStatus{ContainerStatuses: waiting("CrashLoopBackOff", "back-off 10s")},
			fault:  "CrashLoopBackOff: back-off 10s", trouble: "CrashLoopBackOff: back-off 10s",
		},
		"no image": {
			status: corev1.PodStatus{ContainerStatuses: waiting("ErrImagePull", "")},
			fault:  "ErrImagePull", trouble: "ErrImagePull",
		},
		"is being started": {
			status:  corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waiting("ContainerCreating", "")},
			trouble: "ContainerCreating",
		},
		"its container has ended": {
			status: corev1.PodStatus{ContainerStatuses: ended("OOMKilled")},
			fault:  "its container ended: OOMKilled", trouble: "its container ended: OOMKilled",
		},
		"has no node": {
			status: corev1.PodStatus{
				Conditions: condition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/2 nodes"),
			},
			fault: "Unschedulable: 0/2 nodes", trouble: "Unschedulable: 0/2 nodes",
		},
	} {
		pod := &corev1.Pod{Status: test.status}
		if test.deleted {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		if got := PodReady(pod); got != test.ready {
			t.Errorf("%s: ready %v", name, got)
		}
		if got := PodFault(pod); got != test.fault {
			t.Errorf("%s: fault %q, want %q", name, got, test.fault)
		}
		if got := PodTrouble(pod); got != test.trouble {
			t.Errorf("%s: trouble %q, want %q", name, got, test.trouble)
		}
	}
}
