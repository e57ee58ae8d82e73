package vmicontroller

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestHostModelSelector(t *testing.T) {
	node := func(labels ...string) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"other": "label", v1.CPUFeatureLabel + "avx": "true"},
			},
		}
		for _, l := range labels {
			n.Labels[l] = "true"
		}
		return n
	}
	pod := func(selector ...string) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{v1.NodeSchedulable: "true"}}}
		for _, s := range selector {
			p.Spec.NodeSelector[s] = "true"
		}
		return p
	}
	milan := node(v1.HostModelCPULabel+"EPYC-Milan", v1.HostModelRequiredFeaturesLabel+"spec-ctrl",
		v1.HostModelRequiredFeaturesLabel+"stibp")
	for name, tc := range map[string]struct {
		model  string
		source *corev1.Pod
		node   *corev1.Node
		want   string
	}{
		"by the node": {
			"host-model", pod(), milan, "cpu-feature/spec-ctrl cpu-feature/stibp cpu-model-migration/EPYC-Milan",
		},
		"host-model by default": {
			"", pod(v1.CPUFeatureLabel + "aes"), milan,
			"cpu-feature/aes cpu-feature/spec-ctrl cpu-feature/stibp cpu-model-migration/EPYC-Milan",
		},
		"it has moved": {
			"host-model", pod(v1.SupportedHostModelMigrationCPU+"EPYC", v1.CPUFeatureLabel+"aes"), milan,
			"cpu-feature/aes cpu-model-migration/EPYC",
		},
		"the source's pod is gone": {
			"host-model", &corev1.Pod{}, milan,
			"cpu-feature/spec-ctrl cpu-feature/stibp cpu-model-migration/EPYC-Milan",
		},
		"no labels":        {"host-model", pod(), node(), ""},
		"no node":          {"host-model", pod(), &corev1.Node{}, ""},
		"named":            {"EPYC", pod(), milan, ""},
		"host-passthrough": {"host-passthrough", pod(), milan, ""},
	} {
		vmi := &v1.VirtualMachineInstance{
			Spec: v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{CPU: &v1.CPU{Model: tc.model}}},
		}
		got := strings.Join(slices.Sorted(maps.Keys(HostModelSelector(vmi, tc.source, tc.node))), " ")
		if got = strings.ReplaceAll(got, ".node.kubevirt.io", ""); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
