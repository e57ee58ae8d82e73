package vmistatus

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Persistent state that is on a claim of one node keeps the guest there.
func TestStateObstacles(t *testing.T) {
	on := true
	for name, test := range map[string]struct {
		persistent *bool
		access     corev1.PersistentVolumeAccessMode
		want       int
	}{
		"shared":         {&on, corev1.ReadWriteMany, 0},
		"of one node":    {&on, corev1.ReadWriteOnce, 1},
		"not persistent": {nil, corev1.ReadWriteOnce, 0},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: test.persistent}
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "persistent-state-for-demo-abcde", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
				ClaimName: "persistent-state-for-demo-abcde", AccessModes: []corev1.PersistentVolumeAccessMode{test.access},
			}}}
			found := stateObstacles(vmi)
			if len(found) != test.want || test.want > 0 && found[0].reason != v1.VirtualMachineInstanceReasonDisksNotMigratable {
				t.Errorf("obstacles %+v", found)
			}
		})
	}
}

// A claim that is only read may be one that many nodes can read.
func TestReadOnlyClaimMoves(t *testing.T) {
	info := &v1.PersistentVolumeClaimInfo{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}}
	if onBothNodes(info, false) || !onBothNodes(info, true) || onBothNodes(nil, true) {
		t.Error("ReadOnlyMany is for claims that are only read")
	}
}

// All that keeps a guest on its node is said at once, and the first is the reason.
func TestAllObstacles(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.CPU = &v1.CPU{Model: v1.CPUModeHostPassthrough}
	vmi.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node1"}
	vmi.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}}
	for emulated, reason := range map[bool]string{false: v1.VirtualMachineInstanceReasonCPUModeNotMigratable, true: v1.VirtualMachineInstanceReasonNotMigratable} {
		c := &conditionList{}
		migratable(vmi, nil, emulated, c)
		for _, condition := range c.list {
			want, parts := v1.VirtualMachineInstanceReasonDisksNotMigratable, 3
			if condition.Type == v1.VirtualMachineInstanceIsStorageLiveMigratable {
				want, parts = reason, 2
			}
			if emulated {
				parts--
			}
			if condition.Reason != want || len(strings.Split(condition.Message, "; ")) < parts || strings.Contains(condition.Message, "cpu.model") == emulated {
				t.Errorf("%s, emulated %t: %s: %s", condition.Type, emulated, condition.Reason, condition.Message)
			}
		}
	}
}
