package life

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTakesVMs(t *testing.T) {
	for name, test := range map[string]struct {
		label           string
		cordoned        bool
		takes, takesNew bool
	}{
		"virt-handler is ready":          {"true", false, true, true},
		"cordoned":                       {"true", true, true, false},
		"virt-handler is silent":         {"false", false, false, false},
		"virt-handler has not run there": {"", false, false, false},
		"nor will it":                    {"", true, false, false},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: test.cordoned}}
		if test.label != "" {
			node.ObjectMeta = metav1.ObjectMeta{Labels: map[string]string{"kubevirt.io/schedulable": test.label}}
		}
		if takes, takesNew := TakesVMs(node), TakesNewVMs(node); takes != test.takes || takesNew != test.takesNew {
			t.Errorf("%s: takes VMs %t, new ones %t", name, takes, takesNew)
		}
	}
}

func TestNodeConditions(t *testing.T) {
	type condition = corev1.NodeCondition
	for name, test := range map[string]struct {
		conditions []condition
		notReady   string // the condition's message
		pressures  []corev1.NodeConditionType
	}{
		"nobody has said anything": {},
		"ready": {conditions: []condition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "posting"},
		}},
		"not ready": {notReady: "no network", conditions: []condition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "no network"},
		}},
		"silent": {notReady: "stopped posting", conditions: []condition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "stopped posting"},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown},
		}},
		"ready, and short of everything": {
			conditions: []condition{
				{Type: corev1.NodePIDPressure, Status: corev1.ConditionTrue},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: "PeerPressure", Status: corev1.ConditionTrue},
			},
			pressures: []corev1.NodeConditionType{
				corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
			},
		},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: test.conditions}}
		message := ""
		if c := NodeNotReady(node); c != nil {
			message = c.Message
		}
		if message != test.notReady {
			t.Errorf("%s: not ready: %q", name, message)
		}
		if got := NodePressures(node); !slices.Equal(got, test.pressures) {
			t.Errorf("%s: pressures %v", name, got)
		}
	}
}
