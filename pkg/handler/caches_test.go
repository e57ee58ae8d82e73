package handler

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Of where a pod may be, what may tie it to this node is kept: LiveMigratable asks for it.
func TestStripPodKeepsTies(t *testing.T) {
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelHostname: "host1", "zone": "a"},
		Affinity: &corev1.Affinity{
			PodAffinity:  &corev1.PodAffinity{},
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required},
		},
	}}
	out, err := stripPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	spec := out.(*corev1.Pod).Spec
	if want := map[string]string{corev1.LabelHostname: "host1"}; !maps.Equal(spec.NodeSelector, want) {
		t.Errorf("node selector %v, want %v", spec.NodeSelector, want)
	}
	if a := spec.Affinity; a.PodAffinity != nil ||
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != required {
		t.Errorf("affinity %+v", a)
	}
}
