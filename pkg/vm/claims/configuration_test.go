package claims

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		source v1.VolumeSource
		want   bool
	}{
		"NoCloud":          {v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{}}, true},
		"config drive":     {v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{}}, true},
		"sysprep":          {v1.VolumeSource{Sysprep: &v1.SysprepSource{}}, true},
		"ConfigMap":        {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, true},
		"Secret":           {v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}, true},
		"service account":  {v1.VolumeSource{ServiceAccount: &v1.ServiceAccountVolumeSource{}}, true},
		"downward API":     {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}, true},
		"downward metrics": {v1.VolumeSource{DownwardMetrics: &v1.DownwardMetricsVolumeSource{}}, false},
		"container disk":   {v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}, false},
		"claim": {
			v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, false,
		},
		"empty disk": {v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}, false},
	} {
		if got := Configuration(&v1.Volume{VolumeSource: tc.source}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
