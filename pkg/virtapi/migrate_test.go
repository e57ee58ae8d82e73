package virtapi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

func TestMayMigrate(t *testing.T) {
	vm := machine(v1.RunStrategyAlways)
	running := instance(v1.Running)
	stuck := running.DeepCopy()
	stuck.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse, Reason: "DisksNotLiveMigratable",
		Message: "volume a",
	}}
	waits := running.DeepCopy()
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = "small"
	waits.Spec.Volumes = []v1.Volume{{Name: "d1", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}}
	waits.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "d1", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "was"},
	}}
	waits.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
		{
			Type: volumemigration.Condition, Status: corev1.ConditionTrue, Reason: volumemigration.ReasonWaiting,
			Message: "use a larger claim",
		},
	}
	migration := func(name string, phase v1.VirtualMachineInstanceMigrationPhase) v1.VirtualMachineInstanceMigration {
		m := v1.VirtualMachineInstanceMigration{Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: name}}
		m.Name, m.Status.Phase = "first", phase
		return m
	}
	for name, tc := range map[string]struct {
		vmi        *v1.VirtualMachineInstance
		migrations []v1.VirtualMachineInstanceMigration
		want       string
	}{
		"running": {running, nil, ""},
		"moved before": {
			running,
			[]v1.VirtualMachineInstanceMigration{
				migration(vm.Name, v1.MigrationSucceeded), migration(vm.Name, v1.MigrationFailed),
			},
			"",
		},
		"another's": {running, []v1.VirtualMachineInstanceMigration{migration("other", v1.MigrationRunning)}, ""},
		"moving": {
			running,
			[]v1.VirtualMachineInstanceMigration{migration(vm.Name, v1.MigrationPending)},
			"in-flight migration detected. Active migration job (first)",
		},
		"stopped":  {nil, nil, "VM is not running"},
		"starting": {instance(v1.Scheduled), nil, "VM is not running"},
		"leaving":  {leaving(), nil, "VM is not running"},
		"waits":    {waits, nil, "Cannot migrate VMI, Reason: VolumesChangeWaiting, Message: use a larger claim"},
		"cannot":   {stuck, nil, "Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: volume a"},
	} {
		err := mayMigrate(vm, tc.vmi, tc.migrations)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
