package images

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Clone returns a claim whose disk is a copy of an image's: of the same storage class and volume mode, with its labels
// of defaults, and as large or, if size is not empty, larger. The storage driver makes the copy, copy on write where it
// can.
func Clone(image *corev1.PersistentVolumeClaim, name, size string) (*corev1.PersistentVolumeClaim, error) {
	have := image.Status.Capacity[corev1.ResourceStorage]
	if have.IsZero() {
		have = image.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	if size != "" {
		asked, err := resource.ParseQuantity(size)
		if err != nil {
			return nil, fmt.Errorf("%q is no size; write one such as 10Gi", size)
		}
		if asked.Cmp(have) < 0 {
			return nil, fmt.Errorf("the image has %s, and its copy cannot have less; ask for %s or more", have.String(),
				have.String())
		}
		have = asked
	}
	labels := maps.Clone(image.Labels)
	maps.DeleteFunc(labels, func(label, _ string) bool { return !uploads.IsDefault(label) }) // a copy is no image
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: image.Spec.AccessModes, StorageClassName: image.Spec.StorageClassName,
			VolumeMode: image.Spec.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: have},
			},
			DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: image.Name},
		},
	}, nil
}
