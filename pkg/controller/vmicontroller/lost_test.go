package vmicontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// A VMI whose node is lost ends when the node is fenced or its pod is gone, and not before.
func TestNodeLoss(t *testing.T) {
	outOfService := &corev1.Node{
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		},
	}
	migrating := func(vmi *v1.VirtualMachineInstance) {
		start := at(0)
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			TargetPod: "target", TargetNode: "node02", StartTimestamp: &start,
		}
		vmi.Status.ActivePods = map[types.UID]string{"pod-uid": "node01", "target": "node02"}
	}
	target := func(pod *corev1.Pod) {
		pod.Name, pod.UID, pod.Spec.NodeName, pod.Status.Phase = "target", "target", "node02", corev1.PodRunning
	}
	left := ended(corev1.PodSucceeded, `{"lifecycle":"LIFECYCLE_MIGRATED"}`)
	long := now.Add(-time.Minute)
	for _, c := range []struct {
		name  string
		vmi   *v1.VirtualMachineInstance
		pods  []*corev1.Pod
		node  *corev1.Node
		since time.Time
		want  v1.VirtualMachineInstancePhase
		again time.Duration
	}{
		{
			"unreachable", testVMI(t, v1.Unknown),
			[]*corev1.Pod{testPod(running)},
			&corev1.Node{},
			time.Time{},
			v1.Unknown, 0,
		},
		{
			"unreachable, pod on its way", testVMI(t, v1.Unknown),
			[]*corev1.Pod{testPod(running, going)},
			&corev1.Node{}, long, v1.Unknown, fencedAgain,
		},
		{
			"out of service", testVMI(t, v1.Unknown),
			[]*corev1.Pod{testPod(running, going)},
			outOfService,
			time.Time{},
			v1.Failed, 0,
		},
		{
			"out of service, but virt-handler answers", testVMI(t, v1.Running),
			[]*corev1.Pod{testPod(running, going)},
			outOfService,
			time.Time{},
			v1.Running, 0,
		},
		{"pod gone, and its end known", testVMI(t, v1.Unknown), nil, &corev1.Node{}, time.Time{}, v1.Failed, 0},
		{
			"source gone in mid-migration", testVMI(t, v1.Unknown, migrating),
			[]*corev1.Pod{testPod(target)},
			nil,
			time.Time{},
			v1.Unknown, handlerGrace,
		},
		{
			"source gone in mid-migration, for long", testVMI(t, v1.Unknown, migrating),
			[]*corev1.Pod{testPod(target)},
			nil, long, v1.Failed, 0,
		},
		{
			"moved, which nobody has said yet", testVMI(t, v1.Running, migrating),
			[]*corev1.Pod{testPod(left), testPod(target)},
			nil, long, v1.Running, 0,
		},
		{
			"moved to a node that is lost and fenced", testVMI(t, v1.Running, migrating),
			[]*corev1.Pod{testPod(left)},
			nil, long, v1.Failed, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			step := Next(View{VMI: c.vmi, Pods: c.pods, Node: c.node, DeadSince: c.since, Now: now})
			if step.Status.Phase != c.want || step.RequeueAfter != c.again {
				t.Errorf("phase %s, again after %s; want %s, %s", step.Status.Phase, step.RequeueAfter, c.want, c.again)
			}
			if len(step.DeletePods) > 0 || step.CreatePod {
				t.Errorf("it acts: %+v", step)
			}
		})
	}
}

// The pods of a deleted VMI are removed from a node that is fenced, and from no other.
func TestRemoveFenced(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
		n := &corev1.Node{
			Spec:   corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
		n.Name = name
		return n
	}
	out := corev1.Taint{Key: corev1.TaintNodeOutOfService}
	for name, c := range map[string]struct {
		node *corev1.Node
		pod  *corev1.Pod
		want int
	}{
		"fenced":           {node("node01", corev1.ConditionUnknown, out), testPod(running, going), 1},
		"not deleted yet":  {node("node01", corev1.ConditionUnknown, out), testPod(running), 0},
		"only silent":      {node("node01", corev1.ConditionUnknown), testPod(running, going), 0},
		"it answers":       {node("node01", corev1.ConditionTrue, out), testPod(running, going), 0},
		"on another node":  {node("node02", corev1.ConditionUnknown, out), testPod(running, going), 0},
		"the node is gone": {nil, testPod(running, going), 0},
	} {
		step := Next(View{VMI: testVMI(t, v1.Unknown, deleted), Pods: []*corev1.Pod{c.pod}, Node: c.node, Now: now})
		if len(step.RemovePods) != c.want || step.RemoveFinalizer {
			t.Errorf("%s: %+v", name, step)
		}
	}
}

func TestTolerations(t *testing.T) {
	seconds := int64(30)
	for name, c := range map[string]struct {
		own  []corev1.Toleration
		want int
	}{
		"none":    {nil, 1},
		"another": {[]corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}, 2},
		"another effect": {
			[]corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}, 2,
		},
		"says so itself": {
			[]corev1.Toleration{
				{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
			},
			1,
		},
		"tolerates all anyway": {[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, 1},
	} {
		if got := tolerations(c.own); len(got) != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
