//go:build integration

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// What holds for a guest on another network is in its annotation: also before the cluster knows policies, when they
// change, when a pod comes that they mean, and when the kind goes. TestNetworkPoliciesHold runs alone: for the others
// there are no policies.
func TestNetworkPoliciesHold(tt *testing.T) {
	t := newSerialTest(tt)
	vmi := &v1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name = t.namespace, "demo"
	vmi.Labels = map[string]string{"app": "site"}
	vmi.Spec = v1.VirtualMachineInstanceSpec{Architecture: "amd64"}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "red", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
	}}
	vmi.Spec.Networks = []v1.Network{{
		Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}},
	}}
	t.must(cluster.Client.Create(t.ctx, vmi))
	says := func(what string, parts ...string) {
		t.Helper()
		t.waitVMI(what, func(vmi *v1.VirtualMachineInstance) bool {
			text := vmi.Annotations[network.AnnotationPolicies]
			for _, part := range parts {
				if word, not := strings.CutPrefix(part, "!"); strings.Contains(text, word) == not {
					return false
				}
			}
			return text != ""
		})
	}
	says("no policies", `"network":"`+t.namespace+`/red"`, `!"policies"`)

	keep := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: multipolicy.Resource + "." + multipolicy.Version.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: multipolicy.Version.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: multipolicy.Resource, Singular: "multi-networkpolicy", Kind: multipolicy.Kind,
				ListKind: multipolicy.Kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: multipolicy.Version.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}},
			}},
		},
	}
	t.must(cluster.Client.Create(t.ctx, definition))
	tt.Cleanup(func() { t.undefine(definition) })
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": multipolicy.Version.String(), "kind": multipolicy.Kind,
		"metadata": map[string]any{
			"namespace": t.namespace, "name": "p", "annotations": map[string]any{multipolicy.AnnotationFor: "red"},
		},
		"spec": map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "site"}}},
	}}
	t.eventually("the kind is served", func() (bool, error) {
		err := cluster.Client.Create(t.ctx, policy.DeepCopy())
		return err == nil, nil
	})
	says("closed", `"policies":[{"name":"p","ingress":{}}]`)

	before := policy.DeepCopy()
	t.must(cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(policy), before))
	after := before.DeepCopy()
	after.Object["spec"] = map[string]any{
		"podSelector": map[string]any{},
		"ingress":     []any{map[string]any{"from": []any{map[string]any{"podSelector": map[string]any{}}}}},
	}
	t.must(cluster.Client.Patch(t.ctx, after, client.MergeFrom(before)))
	peer := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.namespace, Name: "peer", Annotations: map[string]string{
				network.AnnotationStatus: `[{"name":"` + t.namespace + `/red","ips":["192.0.2.7"]}]`,
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "none"}}},
	}
	t.must(cluster.Client.Create(t.ctx, peer))
	says("a peer", `"addresses":["192.0.2.7"]`)
	t.must(cluster.Client.Delete(t.ctx, peer, client.GracePeriodSeconds(0)))
	says("no peer", `"name":"p"`, `!192.0.2.7`)

	// One that nobody can read closes everything, and the others hold still.
	broken := policy.DeepCopy()
	broken.SetName("broken")
	broken.Object["spec"] = map[string]any{"ingress": "all"}
	t.must(cluster.Client.Create(t.ctx, broken))
	says("an unreadable policy", `"name":"broken"`, `"egress":{}`, `"name":"p"`)

	t.undefine(definition)
	says("the kind has gone", `!"policies"`)
}
