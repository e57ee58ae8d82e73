package store

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// TestLoneInstance has the statuses of an instance without a VM, which a VM would have too.
func TestLoneInstance(t *testing.T) {
	condition := func(of v1.VirtualMachineInstanceConditionType) v1.VirtualMachineInstanceCondition {
		return v1.VirtualMachineInstanceCondition{Type: of, Status: corev1.ConditionTrue}
	}
	now := metav1.Now()
	for want, change := range map[string]func(*v1.VirtualMachineInstance){
		"Running": func(*v1.VirtualMachineInstance) {},
		"Paused": func(i *v1.VirtualMachineInstance) {
			i.Status.Conditions = append(i.Status.Conditions, condition(v1.VirtualMachineInstancePaused))
		},
		"Migrating": func(i *v1.VirtualMachineInstance) {
			i.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{StartTimestamp: &now}
		},
		"Terminating": func(i *v1.VirtualMachineInstance) { i.DeletionTimestamp = &now },
		"Scheduling":  func(i *v1.VirtualMachineInstance) { i.Status.Phase = v1.Scheduling },
	} {
		i := vmi("lone", "n1", false)
		change(&i)
		m := NewMachines(func() {})
		m.Load(nil, []v1.VirtualMachineInstance{i})
		if got := m.Rows()[0].Status; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}
