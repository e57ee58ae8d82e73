package snapshots

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Claims that cannot be snapshotted are left out, with the reason; what the spec makes anew is none of them.
func TestLeftOut(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"}}
	if out, text := LeftOut(vm), LeftOutWarning(vm); out != nil || text != "" {
		t.Errorf("of nothing: %v, %q", out, text)
	}
	boot := v1.Volume{Name: "boot"}
	boot.ContainerDisk = &v1.ContainerDiskSource{}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Volumes = []v1.Volume{
		onClaim("disk", "disk", false), onClaim("logs", "logs", true), onClaim("mail", "mail", false), boot,
	}
	vm.Status.VolumeSnapshotStatuses = []v1.VolumeSnapshotStatus{
		{Name: "disk", Enabled: true},
		{Name: "logs", Reason: "no class"},
		{Name: "boot", Reason: "not supported"},
		{Name: "mail"},
		{Name: "plugged", Reason: "no class"}, // until the next start
	}
	if out := LeftOut(vm); !slices.Equal(out, []Omitted{
		{"logs", "no class"}, {"mail", "no reason is given"}, {"plugged", "no class"},
	}) {
		t.Errorf("%v", out)
	}
	const text = "volumes of VM ns/demo that cannot be snapshotted: logs (no class), mail (no reason is given), " +
		"plugged (no class)"
	if LeftOutText(vm) != text || LeftOutWarning(vm) != text+"; they are left out" {
		t.Errorf("%q, %q", LeftOutText(vm), LeftOutWarning(vm))
	}
	vm.Status.VolumeSnapshotStatuses = append(vm.Status.VolumeSnapshotStatuses,
		v1.VolumeSnapshotStatus{Name: "late", Reason: "PVC late " + boundAtStart})
	if warnings := Warnings(vm); !slices.Equal(warnings, []string{
		text + "; they are left out",
		"volumes of VM ns/demo that cannot be snapshotted yet: late (PVC late is bound when the VM is started for " +
			"the first time); the snapshot waits for that until its deadline",
	}) {
		t.Errorf("%q", warnings)
	}
}
