package volume

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/wait"
)

func TestRequest(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		disk v1.Disk
		dry  []string
	}{
		"by its claim alone": {
			Options{Volume: "data"},
			v1.Disk{Name: "data", Serial: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}},
			nil,
		},
		"a name of its own": {
			Options{Volume: "data", Disk: "scratch", Bus: "virtio", Serial: "S1", Cache: "none"},
			v1.Disk{
				Name: "scratch", Serial: "S1", Cache: v1.CacheNone,
				DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
			},
			nil,
		},
		"a CD": {
			Options{Volume: "iso", DiskType: "cdrom", DryRun: true},
			v1.Disk{Name: "iso", Serial: "iso", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI}}},
			[]string{metav1.DryRunAll},
		},
		"a LUN": {
			Options{Volume: "raw", DiskType: "lun"},
			v1.Disk{Name: "raw", Serial: "raw", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{Bus: v1.DiskBusSCSI}}},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Request(c.o)
			claim := got.VolumeSource.PersistentVolumeClaim
			if !reflect.DeepEqual(*got.Disk, c.disk) || got.Name != c.disk.Name ||
				!reflect.DeepEqual(got.DryRun, c.dry) {
				t.Errorf("%+v of disk %+v", got, got.Disk)
			}
			if claim.ClaimName != c.o.Volume || !claim.Hotpluggable {
				t.Errorf("from %+v", claim)
			}
		})
	}
}

func TestPlugged(t *testing.T) {
	spec := v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{Name: "data"}}}
	vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{
		Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: spec},
	}}
	vmi := func(spec v1.VirtualMachineInstanceSpec, phases ...v1.VolumePhase) *v1.VirtualMachineInstance {
		out := &v1.VirtualMachineInstance{Spec: spec}
		for _, phase := range phases {
			out.Status.VolumeStatus = append(out.Status.VolumeStatus, v1.VolumeStatus{Name: "data", Phase: phase})
		}
		return out
	}
	for name, c := range map[string]struct {
		state              wait.State
		plugged, unplugged bool
	}{
		"a VM that is off and will have it": {wait.State{VM: vm}, true, true},
		"a VM that is off without it":       {wait.State{VM: &v1.VirtualMachine{}}, false, true},
		"ready in the guest":                {wait.State{VMI: vmi(spec, v1.VolumeReady)}, true, false},
		"on its way":                        {wait.State{VMI: vmi(spec, v1.VolumePending)}, false, false},
		"not looked at yet":                 {wait.State{VMI: vmi(spec)}, false, false},
		"still on the node": {
			wait.State{VMI: vmi(v1.VirtualMachineInstanceSpec{}, v1.HotplugVolumeDetaching)}, false, false,
		},
		"gone": {wait.State{VMI: vmi(v1.VirtualMachineInstanceSpec{})}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Plugged("data").Met(c.state); err != nil || got != c.plugged {
				t.Errorf("plugged: %t, %v", got, err)
			}
			if got, err := Unplugged("data").Met(c.state); err != nil || got != c.unplugged {
				t.Errorf("unplugged: %t, %v", got, err)
			}
		})
	}
}
