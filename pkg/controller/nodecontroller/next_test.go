package nodecontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestExamine(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(heartbeat string, ready corev1.ConditionStatus) *corev1.Node {
		node := &corev1.Node{
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: ready, Message: "silent", LastTransitionTime: metav1.NewTime(now)},
				},
			},
		}
		if heartbeat != "" {
			node.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{v1.VirtHandlerHeartbeat: heartbeat}}
		}
		return node
	}
	since := func(node *corev1.Node, then time.Time) *corev1.Node {
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(then)
		return node
	}
	cases := []struct {
		name         string
		node         *corev1.Node
		lost, silent bool
		again        time.Duration
		reason       string
	}{
		{
			"alive", node(`"2026-01-02T03:04:00Z"`, corev1.ConditionTrue), false, false, 4*time.Minute + 56*time.Second,
			"",
		},
		{
			"alive, without quotes", node("2026-01-02T03:04:05Z", corev1.ConditionTrue), false, false,
			5*time.Minute + time.Second, "",
		},
		{
			"alive, kubelet not well", node(`"2026-01-02T03:04:05Z"`, corev1.ConditionFalse), false, false,
			5*time.Minute + time.Second, "",
		},
		{
			"virt-handler silent", node(`"2026-01-02T02:59:04Z"`, corev1.ConditionTrue), true, true, 0,
			"silent since 2026-01-02T02:59:04Z",
		},
		{"heartbeat unreadable", node(`soon`, corev1.ConditionTrue), true, true, 0, "not a time"},
		{
			"node silent", node(`"2026-01-02T03:04:05Z"`, corev1.ConditionUnknown), true, true,
			5*time.Minute + time.Second, "does not answer: silent",
		},
		{
			"node silent, but its virt-handler is not",
			since(node(`"2026-01-02T03:04:05Z"`, corev1.ConditionUnknown), now.Add(-time.Second)), false, false,
			5*time.Minute + time.Second, "",
		},
		{
			"node silent, without virt-handler", node("", corev1.ConditionUnknown), true, false, 0,
			"does not answer: silent",
		},
		{"no virt-handler", node("", corev1.ConditionTrue), false, false, 0, ""},
		{"gone", nil, true, false, 0, "does not exist"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := examine(c.node, 5*time.Minute, now)
			if got.lost != c.lost || got.silent != c.silent || got.again != c.again ||
				!strings.Contains(got.reason, c.reason) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestNext(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	instance := func(name string, phase v1.VirtualMachineInstancePhase, node string) *v1.VirtualMachineInstance {
		return &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     v1.VirtualMachineInstanceStatus{Phase: phase, NodeName: node},
		}
	}
	vmis := []*v1.VirtualMachineInstance{
		instance("runs", v1.Running, "n"), instance("ended", v1.Succeeded, "n"), instance("lost", v1.Unknown, "n"),
		instance("waits", v1.Scheduling, ""),
	}
	node := func(heartbeat, schedulable string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1.NodeSchedulable: schedulable},
			Annotations: map[string]string{v1.VirtHandlerHeartbeat: heartbeat},
		}}
	}
	for name, c := range map[string]struct {
		node          *corev1.Node
		unschedulable bool
		lose          string
		again         time.Duration
	}{
		"well":               {node("2026-01-02T03:04:05Z", "true"), false, "", 5*time.Minute + time.Second},
		"silent":             {node("2026-01-02T02:00:00Z", "true"), true, "runs", 0},
		"silent, and marked": {node("2026-01-02T02:00:00Z", "false"), false, "runs", 0},
		"gone":               {nil, false, "runs", 0},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(View{Node: c.node, VMIs: vmis, Timeout: 5 * time.Minute, Now: now})
			var lose []string
			for _, lost := range step.Lose {
				lose = append(lose, lost.VMI.Name)
				if lost.Status.Phase != v1.Unknown || lost.Status.NodeName != "n" ||
					lost.VMI.Status.Phase == v1.Unknown {
					t.Errorf("%s becomes %+v, and was %s", lost.VMI.Name, lost.Status, lost.VMI.Status.Phase)
				}
			}
			got := strings.Join(lose, " ")
			if step.Unschedulable != c.unschedulable || got != c.lose || step.RequeueAfter != c.again {
				t.Errorf("unschedulable %t, lose %q, again after %s", step.Unschedulable, got, step.RequeueAfter)
			}
			if len(step.Lose) > 0 && step.Reason == "" {
				t.Error("no reason")
			}
		})
	}
}

func TestMarkUnknown(t *testing.T) {
	status := v1.VirtualMachineInstanceStatus{Phase: v1.Running, Conditions: []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
		{Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue},
	}}
	markUnknown(&status, time.Now())
	if status.Phase != v1.Unknown || status.Reason != "NodeUnresponsive" ||
		status.Conditions[0].Status != corev1.ConditionFalse || status.Conditions[0].Reason != "NodeUnresponsive" ||
		status.Conditions[1].Status != corev1.ConditionTrue || len(status.PhaseTransitionTimestamps) != 1 {
		t.Errorf("%+v", status)
	}
}

// A node that comes and goes for years does not fill its VMIs' status.
func TestTransitionsAreBounded(t *testing.T) {
	status := v1.VirtualMachineInstanceStatus{}
	add := func(phase v1.VirtualMachineInstancePhase) {
		status.PhaseTransitionTimestamps = append(status.PhaseTransitionTimestamps,
			v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase})
	}
	add(v1.Pending)
	for range 100 {
		add(v1.Running) // as virt-handler does
		markUnknown(&status, time.Now())
	}
	list := status.PhaseTransitionTimestamps
	last := len(list) - 1
	if len(list) > maxTransitions || list[0].Phase != v1.Pending || list[last].Phase != v1.Unknown ||
		list[last-1].Phase != v1.Running {
		t.Errorf("%d transitions, from %s to %s after %s", len(list), list[0].Phase, list[last].Phase,
			list[last-1].Phase)
	}
}
