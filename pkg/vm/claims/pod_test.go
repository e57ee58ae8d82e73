package claims

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUsedBy(t *testing.T) {
	pod := func(phase corev1.PodPhase, volumes ...corev1.Volume) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{Volumes: volumes},
			Status: corev1.PodStatus{Phase: phase},
		}
	}
	volume := func(name string, source corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: source}
	}
	named := func(claim string) corev1.Volume {
		return volume("disk", corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		})
	}
	scratch := volume("scratch", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
	empty := volume("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		claim string
		want  bool
	}{
		"no volumes":                 {pod(corev1.PodRunning), "claim", false},
		"by name":                    {pod(corev1.PodRunning, empty, named("claim")), "claim", true},
		"waits to":                   {pod(corev1.PodPending, named("claim")), "claim", true},
		"another claim":              {pod(corev1.PodRunning, named("other")), "claim", false},
		"has ended":                  {pod(corev1.PodSucceeded, named("claim")), "claim", false},
		"has failed":                 {pod(corev1.PodFailed, named("claim")), "claim", false},
		"ephemeral":                  {pod(corev1.PodRunning, scratch), "pod-scratch", true},
		"ephemeral, has ended":       {pod(corev1.PodFailed, scratch), "pod-scratch", false},
		"ephemeral, by another name": {pod(corev1.PodRunning, scratch), "scratch", false},
		"no claim":                   {pod(corev1.PodRunning, empty), "pod-scratch", false},
	} {
		if got := UsedBy(test.pod, test.claim); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
