package vmicontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Only the pod that has the guest is Ready.
func TestGate(t *testing.T) {
	pod := func(name, node string, gate corev1.ConditionStatus, mutators ...func(*corev1.Pod)) *corev1.Pod {
		return testPod(append([]func(*corev1.Pod){running, func(pod *corev1.Pod) {
			pod.Name, pod.UID, pod.Spec.NodeName = name, types.UID(name), node
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: Gate}}
			if gate != "" {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: Gate, Status: gate})
			}
		}}, mutators...)...)
	}
	at := func(node string, phase v1.VirtualMachineInstancePhase, mutators ...func(*v1.VirtualMachineInstance),
	) *v1.VirtualMachineInstance {
		return testVMI(t, phase, append([]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.NodeName = node
			vmi.Status.ActivePods = map[types.UID]string{"a": "node01", "b": "node02"}
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourcePod: "a", TargetPod: "b"}
		}}, mutators...)...)
	}
	paused := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions,
			v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue})
	}
	handedOver := func(vmi *v1.VirtualMachineInstance) { vmi.Status.ActivePods["a"] = "" }
	ungated := func(pod *corev1.Pod) { pod.Spec.ReadinessGates = nil }
	over := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
	const yes, no, unset = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionStatus("")
	for _, c := range []struct {
		name string
		vmi  *v1.VirtualMachineInstance
		pods []*corev1.Pod
		want map[string]corev1.ConditionStatus
	}{
		{"no guest yet", at("node01", v1.Scheduled), []*corev1.Pod{pod("a", "node01", unset)}, nil},
		{
			"the guest runs", at("node01", v1.Running),
			[]*corev1.Pod{pod("a", "node01", unset)},
			map[string]corev1.ConditionStatus{"a": yes},
		},
		{"at rest", at("node01", v1.Running), []*corev1.Pod{pod("a", "node01", yes)}, nil},
		{"a launcher from before", at("node01", v1.Running), []*corev1.Pod{pod("a", "node01", unset, ungated)}, nil},
		{
			"paused", at("node01", v1.Running, paused),
			[]*corev1.Pod{pod("a", "node01", yes)},
			map[string]corev1.ConditionStatus{"a": no},
		},
		{"paused, known", at("node01", v1.Running, paused), []*corev1.Pod{pod("a", "node01", no)}, nil},
		{
			"unpaused", at("node01", v1.Running),
			[]*corev1.Pod{pod("a", "node01", no)},
			map[string]corev1.ConditionStatus{"a": yes},
		},
		{
			"about to move", at("node01", v1.Running),
			[]*corev1.Pod{pod("a", "node01", yes), pod("b", "node02", unset)},
			nil,
		},
		{
			"moved", at("node02", v1.Running, handedOver),
			[]*corev1.Pod{pod("a", "node01", yes), pod("b", "node02", unset)},
			map[string]corev1.ConditionStatus{"a": no, "b": yes},
		},
		{
			"moved, the old one has ended", at("node02", v1.Running, handedOver),
			[]*corev1.Pod{pod("a", "node01", yes, over), pod("b", "node02", unset)},
			map[string]corev1.ConditionStatus{"b": yes},
		},
		{
			"moved, the old one goes", at("node02", v1.Running, handedOver),
			[]*corev1.Pod{pod("a", "node01", yes, going), pod("b", "node02", yes)},
			nil,
		},
		{
			"its end is known, but not yet where it is", at("node01", v1.Running),
			[]*corev1.Pod{pod("a", "node01", yes, over), pod("b", "node02", unset)},
			nil,
		},
		{
			"a stranger's pod", at("node01", v1.Running),
			[]*corev1.Pod{pod("a", "node01", yes), pod("stranger", "node01", yes)},
			nil,
		},
		{"the node is lost", at("node01", v1.Unknown), []*corev1.Pod{pod("a", "node01", unset)}, nil},
		{"ended", at("node01", v1.Succeeded), []*corev1.Pod{pod("a", "node01", yes)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			step := Next(View{VMI: c.vmi, Pods: c.pods, Now: now})
			if len(step.Gates) != len(c.want) {
				t.Fatalf("gates %+v, want %v", step.Gates, c.want)
			}
			for _, gate := range step.Gates {
				if gate.Condition.Type != Gate || gate.Condition.Status != c.want[gate.Pod.Name] ||
					!gate.Condition.LastTransitionTime.Time.Equal(now) {
					t.Errorf("pod %s: %+v", gate.Pod.Name, gate.Condition)
				}
				if closed := gate.Condition.Status == no; closed != (gate.Condition.Reason != "" &&
					gate.Condition.Message != "") {
					t.Errorf("pod %s: reason %q, message %q", gate.Pod.Name, gate.Condition.Reason,
						gate.Condition.Message)
				}
			}
		})
	}
}
