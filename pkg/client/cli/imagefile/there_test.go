package imagefile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/upload"
)

// TestDifferences says what a claim that is there has not, and nothing of one that will do.
func TestDifferences(t *testing.T) {
	quantity := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	claim := func(asked, has string) *corev1.PersistentVolumeClaim {
		out := &corev1.PersistentVolumeClaim{}
		out.Spec.Resources.Requests = quantity(asked)
		if has != "" {
			out.Status.Capacity = quantity(has)
		}
		out.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
		out.Spec.StorageClassName = new("local")
		return out
	}
	for _, test := range []struct {
		there *corev1.PersistentVolumeClaim
		size  string
		class string
		block bool
		want  string
	}{
		{claim("400Mi", "400Mi"), "400Mi", "", false, ""},
		{claim("400Mi", "1Gi"), "700Mi", "local", false, ""},
		{claim("400Mi", "400Mi"), "3Gi", "", false, "it has 400Mi rather than 3Gi"},
		{claim("400Mi", ""), "3Gi", "", false, "it has 400Mi rather than 3Gi"}, // not bound yet
		{
			claim("1Gi", "1Gi"), "1Gi", "fast", true,
			`it is a file system rather than a block device, its storage class is "local" rather than "fast"`,
		},
	} {
		asked := upload.Claim{Size: test.size, StorageClass: test.class}
		if got := differences(test.there, asked, test.block); got != test.want {
			t.Errorf("%+v: %q, want %q", asked, got, test.want)
		}
	}
}
