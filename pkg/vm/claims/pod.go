package claims

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// UsedBy reports whether a pod of the claim's namespace that has not ended mounts the claim, or waits to: by its name,
// or as what Kubernetes makes for a generic ephemeral volume of the pod.
func UsedBy(pod *corev1.Pod, claim string) bool { return slices.Contains(podClaims(pod), claim) }

// podClaims returns the claims that a pod uses, none when it has ended.
func podClaims(pod *corev1.Pod) (out []string) {
	if life.PodEnded(pod) {
		return nil
	}
	for i := range pod.Spec.Volumes {
		switch volume := &pod.Spec.Volumes[i]; {
		case volume.PersistentVolumeClaim != nil:
			out = append(out, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			out = append(out, ephemeral.VolumeClaimName(pod, volume))
		}
	}
	return out
}
