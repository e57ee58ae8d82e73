package claims

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// UsedBy reports whether a pod of the claim's namespace that has not ended mounts the claim, or waits to: by its name,
// or as what Kubernetes makes for a generic ephemeral volume of the pod.
func UsedBy(pod *corev1.Pod, claim string) bool {
	return !life.PodEnded(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		switch {
		case volume.PersistentVolumeClaim != nil:
			return volume.PersistentVolumeClaim.ClaimName == claim
		case volume.Ephemeral != nil:
			return ephemeral.VolumeClaimName(pod, &volume) == claim
		}
		return false
	})
}
