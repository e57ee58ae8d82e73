package snapshots

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

func TestInUse(t *testing.T) {
	users := claims.Users{
		"data": {{Name: "a"}, {Name: "b"}, {Kind: "vmi", Name: "c"}}, "kept": {{Name: "a"}},
		"read": {{Name: "a"}, {Kind: "pod", Name: "backup"}},
	}
	for claim, want := range map[string]string{
		"data": "PVC ns/data is used by VM b, vmi/c, and volumeRestorePolicy InPlace would delete it; choose another " +
			"volumeRestorePolicy, or unplug it there first",
		"read": "PVC ns/read is used by pod/backup, and volumeRestorePolicy InPlace would delete it; choose another " +
			"volumeRestorePolicy, or wait until that has ended",
		"kept": "", "free": "",
	} {
		if got, lasting := InUse("ns", claim, "a", users); got != want || lasting != (claim == "data") {
			t.Errorf("%s: %q, lasting %t", claim, got, lasting)
		}
	}
}

func TestKeptBy(t *testing.T) {
	users := claims.Users{
		"data": {{Name: "a"}, {Kind: "vmi", Name: "c"}, {Name: "b"}}, "kept": {{Name: "a"}},
		"read": {{Name: "a"}, {Kind: "pod", Name: "backup"}}, "both": {{Kind: "pod", Name: "backup"}, {Name: "b"}},
	}
	for claim, want := range map[string]string{
		"data": "VM b, vmi/c", "both": "VM b, pod/backup", "read": "", "kept": "", "free": "",
	} {
		if got := KeptBy(claim, "a", users); got != want {
			t.Errorf("%s: %q", claim, got)
		}
	}
}

// The claim of a memory dump is not restored.
func TestBackups(t *testing.T) {
	content := &v1beta1.VirtualMachineSnapshotContent{}
	content.Spec.VolumeBackups = []v1beta1.VolumeBackup{{VolumeName: "data"}, {VolumeName: "dump"}}
	content.Spec.Source.VirtualMachine = &v1beta1.VirtualMachine{}
	template := &v1.VirtualMachineInstanceTemplateSpec{}
	template.Spec.Volumes = []v1.Volume{
		{Name: "data"}, {Name: "dump", VolumeSource: v1.VolumeSource{MemoryDump: &v1.MemoryDumpVolumeSource{}}},
	}
	content.Spec.Source.VirtualMachine.Spec.Template = template
	if got := Backups(content); len(got) != 1 || got[0].VolumeName != "data" {
		t.Errorf("%+v", got)
	}
	content.Spec.Source.VirtualMachine.Spec.Template = nil
	if got := Backups(content); got != nil {
		t.Errorf("of no VM %+v", got)
	}
	content.Spec.Source.VirtualMachine.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	if got := Backups(content); len(got) != 2 {
		t.Errorf("of a VM without a dump %+v", got)
	}
}
