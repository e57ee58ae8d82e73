package vmistatus

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// TestObstaclesAreRead has what virtctl why reads in the condition: each obstacle is one of its kind.
func TestObstaclesAreRead(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "host", VolumeSource: v1.VolumeSource{HostDisk: &v1.HostDisk{Path: "/d.img"}}},
		{Name: "data", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "d"}}},
	}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{*v1.DefaultBridgeNetworkInterface()}
	vmi.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "g"}}
	vmi.Spec.Domain.CPU = &v1.CPU{Model: v1.CPUModeHostPassthrough, Features: []v1.CPUFeature{{Name: "invtsc"}}}
	vmi.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "one"}
	list := &conditionList{}
	migratable(vmi, nil, nil, false, list)
	c := conditions.Find(list.list, v1.VirtualMachineInstanceIsMigratable)
	var got []string
	parsed := migrations.ParseObstacles(c.Message)
	for _, o := range parsed {
		got = append(got, o.Object)
	}
	if want := []string{
		"host", "data", "default", "domain.cpu.model", "invtsc", "domain.devices.gpus", "nodeSelector",
	}; !slices.Equal(got, want) || migrations.EncodeObstacles(parsed) != c.Message {
		t.Errorf("%q of %q", got, c.Message)
	}
}

// TestStorageLiveMigratable: a disk that two nodes cannot use at once keeps the guest only if it cannot be copied, and
// what else keeps it comes first.
func TestStorageLiveMigratable(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.VirtualMachineInstance)
		reason string // empty for True
	}{
		"a disk": {func(*v1.VirtualMachineInstance) {}, ""},
		"shareable": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Disks[0].Shareable = new(true)
		}, "DisksNotLiveMigratable"},
		"a LUN": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{LUN: &v1.LunTarget{}}
		}, "DisksNotLiveMigratable"},
		"a shareable disk that two nodes can use": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Disks[0].Shareable = new(true)
			vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo.AccessModes = []corev1.PersistentVolumeAccessMode{
				corev1.ReadWriteMany,
			}
		}, ""},
		"virtiofs": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Disks = nil
			vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "data", Virtiofs: &v1.FilesystemVirtiofs{}}}
		}, "DisksNotLiveMigratable"},
		"being plugged in": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes[1].PersistentVolumeClaim.Hotpluggable = true
		}, "DisksNotLiveMigratable"},
		"a LUN, and the pod's address": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{LUN: &v1.LunTarget{}}
			vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{
				Bridge: &v1.InterfaceBridge{},
			}
		}, "InterfaceNotLiveMigratable"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := vmiOf(t, strings.Replace(scheduled, "ReadWriteMany", "ReadWriteOnce", 1))
			vmi.Spec.Domain.Devices.Disks = []v1.Disk{{
				Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
			}}
			c.change(vmi)
			got := Next(Input{VMI: vmi, Guest: guest(nil), Plan: plan(), Now: now})
			at := conditions.Find(got.Conditions, v1.VirtualMachineInstanceIsStorageLiveMigratable)
			if at == nil || at.Reason != c.reason || (at.Status == corev1.ConditionTrue) != (c.reason == "") {
				t.Errorf("%+v, want reason %q", at, c.reason)
			}
		})
	}
}
