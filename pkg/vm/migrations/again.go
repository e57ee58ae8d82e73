package migrations

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// Again returns why virt-controller migrates a guest again as soon as its migration is cancelled, in a clause: "it runs
// an outdated launcher". It is "" when nothing is known. update says that virt-controller made the migration to give
// the guest what only another pod has; IsUpdate knows.
func Again(vmi *v1.VirtualMachineInstance, update bool) string {
	if node := vmi.Status.EvacuationNodeName; node != "" {
		return "it is to leave node " + node + ", which evacuate-cancel takes back"
	}
	if !update {
		return ""
	}
	if _, outdated := vmi.Labels[v1.OutdatedLauncherImageLabel]; outdated {
		return "it runs an outdated launcher"
	}
	for _, c := range []struct {
		kind v1.VirtualMachineInstanceConditionType
		why  string
	}{
		{v1.VirtualMachineInstanceMigrationRequired, "only another pod has the network of an interface"},
		{v1.VirtualMachineInstanceVCPUChange, "only another pod has room for its new number of CPUs"},
		{v1.VirtualMachineInstanceMemoryChange, "only another pod has room for its new amount of memory"},
	} {
		if conditions.With(vmi.Status.Conditions, c.kind, corev1.ConditionTrue) != nil {
			return c.why
		}
	}
	return ""
}

// IsUpdate reports a migration that virt-controller made to give a guest what only another pod has.
func IsUpdate(m *v1.VirtualMachineInstanceMigration) bool {
	_, ok := m.Annotations[v1.WorkloadUpdateMigrationAnnotation]
	return ok
}
