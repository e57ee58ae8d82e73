package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/names"
)

func decode[T any](t *testing.T, all []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == kind && o.GetName() == name {
			out := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func TestPlacement(t *testing.T) {
	spec := &v1.KubeVirtSpec{}
	const text = `
imagePullPolicy: Always
imagePullSecrets: [{name: registry}]
infra:
  replicas: 1
  nodePlacement:
    nodeSelector: {infra: "yes"}
    tolerations: [{key: infra, operator: Exists}]
    affinity:
      podAntiAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - {weight: 5, podAffinityTerm: {topologyKey: zone}}
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}
workloads:
  nodePlacement: {nodeSelector: {guests: "yes"}, affinity: {podAffinity: {}}}
`
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	settings := Settings{}.following(spec)
	all := objects(t, settings)
	for _, name := range []string{names.VirtAPI, names.VirtController} {
		d := decode[appsv1.Deployment](t, all, "Deployment", name)
		pod := d.Spec.Template.Spec
		if *d.Spec.Replicas != 1 || pod.Containers[0].ImagePullPolicy != corev1.PullAlways ||
			pod.ImagePullSecrets[0].Name != "registry" {
			t.Errorf("%s: %+v", name, d.Spec)
		}
		if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux", "infra": "yes"},
			pod.NodeSelector); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if n := len(pod.Tolerations); n != 2 || pod.Tolerations[0].Key != "CriticalAddonsOnly" ||
			pod.Tolerations[1].Key != "infra" {
			t.Errorf("%s: %+v", name, pod.Tolerations)
		}
		apart := pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		if len(apart) != 2 || apart[0].Weight != 1 || apart[1].Weight != 5 ||
			pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			t.Errorf("%s: %+v", name, pod.Affinity)
		}
		budget := decode[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget", name).Spec
		if budget.MinAvailable != nil || budget.MaxUnavailable.IntValue() != 1 {
			t.Errorf("%s may not be evicted: %+v", name, budget)
		}
	}
	if proxy := decode[appsv1.Deployment](t, all, "Deployment", names.VirtExportProxy); *proxy.Spec.Replicas != 0 ||
		proxy.Spec.Template.Spec.NodeSelector["infra"] != "yes" {
		t.Errorf("%s: %+v", proxy.Name, proxy.Spec)
	}
	pod := decode[appsv1.DaemonSet](t, all, "DaemonSet", names.VirtHandler).Spec.Template.Spec
	if pod.NodeSelector["guests"] != "yes" || pod.NodeSelector["infra"] != "" ||
		pod.ImagePullSecrets[0].Name != "registry" || pod.Affinity == nil {
		t.Errorf("virt-handler: %+v", pod)
	}
	three := uint8(3)
	all = objects(t, Settings{Infra: &v1.ComponentConfig{Replicas: &three}})
	if d := decode[appsv1.Deployment](t, all, "Deployment", names.VirtAPI); *d.Spec.Replicas != 3 {
		t.Errorf("%d replicas", *d.Spec.Replicas)
	}
	if budget := decode[policyv1.PodDisruptionBudget](t, all,
		"PodDisruptionBudget", names.VirtAPI).Spec; budget.MinAvailable == nil {
		t.Errorf("%+v", budget)
	}
	if got := (Settings{PullPolicy: "Never"}).following(spec).PullPolicy; got != "Never" {
		t.Errorf("the flag does not go before: %s", got)
	}
}
