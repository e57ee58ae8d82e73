package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// A VMI asks for Istio's proxy by the annotation, as in KubeVirt, or by the label, as a pod does. Its pod has the label
// then, as Istio's webhook wants it, and says by both names where a guest behind masquerade sends, asked or not.
func TestProxied(t *testing.T) {
	const masquerade = `
domain: {devices: {interfaces: [{name: red, masquerade: {}}]}}
networks: [{name: red, pod: {}}]`
	const bridge = `
domain: {devices: {interfaces: [{name: red, bridge: {}}]}}
networks: [{name: red, pod: {}}]`
	asked, refused := map[string]string{InjectProxy: "True"}, map[string]string{InjectProxy: "false"}
	yes := map[string]string{InjectProxy: "true"}
	told := map[string]string{AnnotationRerouted: "k6t-eth0", AnnotationProxied: "k6t-eth0"}
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		spec                string
		want                bool
		label, told         map[string]string
	}{
		"no wish":    {spec: masquerade, told: told},
		"label":      {labels: asked, spec: masquerade, want: true, label: yes, told: told},
		"annotation": {annotations: asked, spec: masquerade, want: true, label: yes, told: told},
		"annotation asks, label does not": {
			labels: refused, annotations: asked, spec: masquerade, want: true, label: yes, told: told,
		},
		"label asks, annotation does not": {
			labels: asked, annotations: refused, spec: masquerade, label: refused, told: told,
		},
		"annotation that is no label": {
			labels: asked, annotations: map[string]string{InjectProxy: "no, thanks"}, spec: masquerade, want: true,
			label: yes, told: told,
		},
		"bridge": {labels: asked, spec: bridge, label: yes},
		"older name by its creator": {
			annotations: map[string]string{AnnotationProxied: "x"}, spec: masquerade,
			told: map[string]string{AnnotationRerouted: "x"},
		},
		"newer name by its creator": {
			annotations: map[string]string{AnnotationRerouted: ""}, spec: masquerade,
			told: map[string]string{AnnotationProxied: ""},
		},
		"both names by its creator": {
			annotations: map[string]string{AnnotationRerouted: "x", AnnotationProxied: "y"}, spec: masquerade,
			told: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			if err := yaml.UnmarshalStrict([]byte(test.spec), &vmi.Spec); err != nil {
				t.Fatal(err)
			}
			vmi.Name, vmi.Labels, vmi.Annotations = "demo", test.labels, test.annotations
			plan, err := NewPlan(vmi, flannelPod())
			if err != nil {
				t.Fatal(err)
			}
			if plan.Interfaces[0].Proxied != test.want {
				t.Errorf("proxied is %t, want %t", plan.Interfaces[0].Proxied, test.want)
			}
			if diff := cmp.Diff(test.label, ProxyLabels(vmi)); diff != "" {
				t.Errorf("labels of the pod: %s", diff)
			}
			if diff := cmp.Diff(test.told, ProxyAnnotations(vmi)); diff != "" {
				t.Errorf("annotations of the pod: %s", diff)
			}
		})
	}
}
