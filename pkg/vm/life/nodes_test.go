package life

import (
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
