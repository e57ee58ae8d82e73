package hotplug

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// machine has hotplugged volumes in these phases, each on the claim of its name; "-" is one that the spec has not.
func machine(phases map[string]v1.VolumePhase, gone ...string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	for name, phase := range phases {
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{
			Name: name, Phase: phase, Target: "sda",
			HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: "old-" + name, AttachPodUID: "old"},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: name},
		})
		if !slices.Contains(gone, name) {
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{
				Name: name,
				VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
					Hotpluggable:                      true,
				}},
			})
		}
	}
	return vmi
}

func TestMoving(t *testing.T) {
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want []string
		busy string
	}{
		"none":         {vmi: machine(nil)},
		"one":          {machine(map[string]v1.VolumePhase{"a": v1.VolumeReady}), []string{"a"}, ""},
		"not here yet": {machine(map[string]v1.VolumePhase{"a": v1.VolumeBound}), nil, ""},
		"gone already": {machine(map[string]v1.VolumePhase{"a": v1.HotplugVolumeUnMounted}), nil, ""},
		"being plugged": {
			machine(map[string]v1.VolumePhase{"a": v1.HotplugVolumeMounted}), nil, `volume "a" is being plugged in`,
		},
		"being unplugged": {
			machine(map[string]v1.VolumePhase{"a": v1.HotplugVolumeDetaching}), nil, `volume "a" is being taken away`,
		},
		"to be unplugged": {
			machine(map[string]v1.VolumePhase{"a": v1.VolumeReady}, "a"),
			[]string{"a"},
			`volume "a" is being taken away`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, busy := Moving(test.vmi)
			if !slices.Equal(got, test.want) || busy != test.busy {
				t.Errorf("%v, %q", got, busy)
			}
		})
	}
	changed := machine(map[string]v1.VolumePhase{"a": v1.VolumeReady})
	changed.Status.VolumeStatus[0].PersistentVolumeClaimInfo.ClaimName = "another"
	if _, busy := Moving(changed); busy == "" {
		t.Error("a volume on another claim is not being taken away")
	}
}

// After the move the volumes that the guest has are in the pod of its new node; the others begin anew.
func TestUseTargetPod(t *testing.T) {
	vmi := machine(map[string]v1.VolumePhase{
		"has":   v1.VolumeReady,
		"waits": v1.VolumeBound,
		"went":  v1.HotplugVolumeUnMounted,
	})
	vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{Name: "root"})
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: "m", TargetAttachmentPodUID: "new",
	}
	list := vmi.DeepCopy().Status.VolumeStatus
	UseTargetPod(vmi, list)
	for _, s := range list {
		switch s.Name {
		case "has":
			if s.Phase != v1.VolumeReady || s.HotplugVolume.AttachPodUID != "new" ||
				s.HotplugVolume.AttachPodName != TargetAttachment("m", []string{"has"}) || s.Target != "sda" {
				t.Errorf("%+v %+v", s, s.HotplugVolume)
			}
		case "waits":
			if s.Phase != v1.VolumePending || s.HotplugVolume == nil || s.HotplugVolume.AttachPodUID != "" {
				t.Errorf("%+v %+v", s, s.HotplugVolume)
			}
		case "went":
			if s.Phase != v1.HotplugVolumeUnMounted || s.HotplugVolume.AttachPodUID != "old" {
				t.Errorf("%+v %+v", s, s.HotplugVolume)
			}
		default:
			if s.HotplugVolume != nil {
				t.Errorf("%+v", s)
			}
		}
	}
}
