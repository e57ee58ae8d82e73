package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// A VMI asks for Istio's proxy as a pod does: by the label, or by the older annotation.
func TestProxied(t *testing.T) {
	const masquerade = `
domain: {devices: {interfaces: [{name: red, masquerade: {}}]}}
networks: [{name: red, pod: {}}]`
	const bridge = `
domain: {devices: {interfaces: [{name: red, bridge: {}}]}}
networks: [{name: red, pod: {}}]`
	asked := map[string]string{InjectProxy: "True"}
	told := map[string]string{AnnotationProxied: "k6t-eth0"}
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		spec                string
		want                bool
		told                map[string]string
	}{
		"no wish":           {spec: masquerade},
		"label":             {labels: asked, spec: masquerade, want: true, told: told},
		"annotation":        {annotations: asked, spec: masquerade, want: true, told: told},
		"label goes before": {labels: map[string]string{InjectProxy: "false"}, annotations: asked, spec: masquerade},
		"bridge":            {labels: asked, spec: bridge},
		"said by its creator": {
			labels: asked, annotations: map[string]string{AnnotationProxied: "x"}, spec: masquerade, want: true,
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
			if diff := cmp.Diff(test.told, ProxyAnnotations(vmi)); diff != "" {
				t.Errorf("annotations of the pod: %s", diff)
			}
		})
	}
}
