package snapshots

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

func TestMemoryTrouble(t *testing.T) {
	disk := func(name string) v1.Disk {
		return v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}
	}
	running := func() *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.Phase = v1.Running
		vmi.Spec.Domain.Devices.Disks = []v1.Disk{
			disk("root"), disk("init"), {Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}},
		}
		vmi.Spec.Volumes = []v1.Volume{
			{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "c"}}},
			{Name: "init", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{}}},
			{Name: "cd", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}},
		}
		return vmi
	}
	for name, tc := range map[string]struct {
		change  func(*v1.VirtualMachineInstance)
		volumes []Volume
		want    string
	}{
		"fine":   {func(*v1.VirtualMachineInstance) {}, nil, ""},
		"starts": {func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Scheduled }, nil, "does not run"},
		"paused": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
				{Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue},
			}
		}, nil, "unpause it first"},
		"device": {
			func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "g"}} }, nil,
			"devices of its host",
		},
		"shares": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "f"}}
		}, nil, "shares file systems"},
		"vsock": {
			func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.AutoattachVSOCK = new(true) }, nil, "vsock",
		},
		"secret": {
			func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.LaunchSecurity = &v1.LaunchSecurity{} }, nil,
			"encrypted",
		},
		"sriov": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{
				{Name: "n", InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}},
			}
		}, nil, "interface n"},
		"plugged": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "p", HotplugVolume: &v1.HotplugVolumeStatus{}}}
		}, nil, "volume p was plugged in"},
		"another snapshot's memory, being unplugged": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.VolumeStatus = []v1.VolumeStatus{
				{Name: savedmemory.Volume("u"), HotplugVolume: &v1.HotplugVolumeStatus{}},
			}
		}, nil, ""},
		"a dump, being unplugged": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{
				Name: "d", HotplugVolume: &v1.HotplugVolumeStatus{}, MemoryDumpVolume: &v1.DomainMemoryDumpInfo{},
			}}
		}, nil, ""},
		"a disk with the name of a snapshot's memory": {func(vmi *v1.VirtualMachineInstance) {
			name := savedmemory.Volume("u")
			vmi.Spec.Volumes = append(vmi.Spec.Volumes,
				v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "c"}}})
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: name, HotplugVolume: &v1.HotplugVolumeStatus{}}}
		}, nil, "was plugged in"},
		"such a disk, being unplugged": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.VolumeStatus = []v1.VolumeStatus{
				{Name: savedmemory.Volume("u"), Target: "sda", HotplugVolume: &v1.HotplugVolumeStatus{}},
			}
		}, nil, "was plugged in"},
		"lost": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, disk("scratch"))
			vmi.Spec.Volumes = append(vmi.Spec.Volumes,
				v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}})
		}, nil, "disk scratch is lost"},
		"left out": {
			func(*v1.VirtualMachineInstance) {},
			[]Volume{{Name: "root", Claim: "c", Reason: "no class"}},
			"volume root is not in it: no class",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi, volumes := running(), tc.volumes
			tc.change(vmi)
			if volumes == nil {
				volumes = []Volume{{Name: "root", Claim: "c"}}
			}
			got := MemoryTrouble(vmi, volumes)
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%q", got)
			}
			passes := tc.want == "" || name == "starts" || name == "paused"
			if MemoryNever("InProgress: Source not locked: "+got) == passes || MemoryReason(got) != (got != "") {
				t.Errorf("%q may pass: %v, want %v", got, !passes, passes)
			}
		})
	}
	if MemoryTrouble(nil, nil) == "" {
		t.Error("memory of no guest")
	}
}

func TestResumeTrouble(t *testing.T) {
	type claims = map[string]*corev1.PersistentVolumeClaim
	for name, tc := range map[string]struct {
		change func(*v1.VirtualMachine, *savedmemory.Resume, claims)
		want   string
	}{
		"fits": {func(*v1.VirtualMachine, *savedmemory.Resume, claims) {}, ""},
		"a later restore": {func(vm *v1.VirtualMachine, _ *savedmemory.Resume, _ claims) {
			vm.Annotations[LastAnnotation] = "undo-2"
		}, "not the VM's last one"},
		"no restore": {func(vm *v1.VirtualMachine, _ *savedmemory.Resume, _ claims) {
			vm.Annotations = nil
		}, "not the VM's last one"},
		"another claim": {func(vm *v1.VirtualMachine, _ *savedmemory.Resume, found claims) {
			vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other"
			found["other"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u3"}}
		}, "claim other of volume one is not the one that the restore made"},
		"made anew under its name": {func(_ *v1.VirtualMachine, _ *savedmemory.Resume, found claims) {
			found["b"].UID = "u3"
		}, "claim b of volume two is not"},
		"gone": {func(_ *v1.VirtualMachine, _ *savedmemory.Resume, found claims) {
			delete(found, "a")
		}, "claim a of volume one does not exist"},
		"its snapshot is deleted": {func(_ *v1.VirtualMachine, _ *savedmemory.Resume, found claims) {
			delete(found, "m")
		}, "the claim does not exist any more"},
		"without the volume": {func(vm *v1.VirtualMachine, _ *savedmemory.Resume, _ claims) {
			vm.Spec.Template.Spec.Volumes = vm.Spec.Template.Spec.Volumes[1:]
		}, "volume one, which the guest has a disk of"},
		"more volumes": {func(_ *v1.VirtualMachine, mark *savedmemory.Resume, _ claims) {
			delete(mark.Disks, "two")
		}, ""},
		"of before marks had disks": {func(_ *v1.VirtualMachine, mark *savedmemory.Resume, _ claims) {
			mark.Disks = nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{}
			vm.Annotations = map[string]string{LastAnnotation: "back-1"}
			source := &v1.PersistentVolumeClaimVolumeSource{}
			source.ClaimName = "a"
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
			vm.Spec.Template.Spec.Volumes = []v1.Volume{
				{Name: "one", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}},
				{Name: "two", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "b"}}},
			}
			found := claims{
				"a": {ObjectMeta: metav1.ObjectMeta{UID: "u1"}}, "b": {ObjectMeta: metav1.ObjectMeta{UID: "u2"}},
				"m": {},
			}
			mark := &savedmemory.Resume{
				Claim: "m", Restore: "1", Disks: map[string]types.UID{"one": "u1", "two": "u2"},
			}
			tc.change(vm, mark, found)
			got := ResumeTrouble(vm, mark, found)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%q", got)
			}
		})
	}
}
