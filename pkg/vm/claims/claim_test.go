package claims

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestOf(t *testing.T) {
	plain := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}
	for name, test := range map[string]struct {
		source v1.VolumeSource
		want   *v1.PersistentVolumeClaimVolumeSource
		// storage: it is the VM's own.
		storage bool
	}{
		"claim": {
			v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: plain},
			},
			&v1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: plain}, true,
		},
		"DataVolume": {
			v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "d", Hotpluggable: true}},
			&v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "d"},
				Hotpluggable:                      true,
			}, true,
		},
		"ephemeral": {
			v1.VolumeSource{
				Ephemeral: &v1.EphemeralVolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "e"},
				},
			},
			&v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{
					ClaimName: "e", ReadOnly: true,
				},
			}, false,
		},
		"memory dump": {
			v1.VolumeSource{MemoryDump: &v1.MemoryDumpVolumeSource{
				PersistentVolumeClaimVolumeSource: v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: plain, Hotpluggable: true,
				},
			}},
			&v1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: plain, Hotpluggable: true},
			false,
		},
		"neither": {v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			volume := &v1.Volume{VolumeSource: test.source}
			if storage := Storage(volume); storage != test.storage {
				t.Errorf("storage %t", storage)
			}
			got := Of(volume)
			if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if got != nil {
				got.ClaimName = "changed"
			}
			if name := Name(volume); got != nil && name == "changed" || got == nil && name != "" {
				t.Errorf("the volume is %q now", name)
			}
		})
	}
}

func TestIsBlock(t *testing.T) {
	for mode, want := range map[corev1.PersistentVolumeMode]bool{
		corev1.PersistentVolumeBlock: true, corev1.PersistentVolumeFilesystem: false, "": false,
	} {
		if got := IsBlock(&mode); got != want {
			t.Errorf("%q: %v", mode, got)
		}
	}
	if IsBlock(nil) {
		t.Error("a claim without a mode is taken for a block device")
	}
}
