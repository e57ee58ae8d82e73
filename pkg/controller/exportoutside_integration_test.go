//go:build integration

package controller

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// An export has an external link while an Ingress, or a Route of a kind that the cluster gets later, leads to
// virt-exportproxy, which has pods for as long. It runs alone: the links are those of all exports.
func TestExportOutside(tt *testing.T) {
	t := newSerialTest(tt)
	t.boundClaim("a", "none")
	t.createVM(v1.RunStrategyHalted, "a")
	proxy := t.exportProxy()
	t.waitProxyPods(proxy, 0)
	export := t.export(exports.KindVM, "demo")
	pod := t.exportPod(nil)
	t.waitExport(export, v1beta1.Ready, exports.ReasonPodReady)
	if export.Status.Links.External != nil {
		t.Errorf("nothing leads there: %+v", export.Status.Links.External)
	}

	ingress := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: "exports"},
		Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: names.VirtExportProxy, Port: networkingv1.ServiceBackendPort{Number: 443},
			}},
			TLS: []networkingv1.IngressTLS{{Hosts: []string{"ingress.example.com"}, SecretName: "absent"}},
		},
	}
	t.must(cluster.Client.Create(t.ctx, ingress))
	t.waitOutside(export, "ingress.example.com")
	t.waitProxyPods(proxy, 2)
	t.must(cluster.Client.Delete(t.ctx, ingress))
	t.waitOutside(export, "")
	t.waitProxyPods(proxy, 0)

	definition := routeDefinition()
	t.must(cluster.Client.Create(t.ctx, definition))
	tt.Cleanup(func() { t.undefine(definition) })
	route := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "route.openshift.io/v1", "kind": "Route",
		"metadata": map[string]any{"namespace": names.Namespace, "name": "exports"},
		"spec": map[string]any{
			"to":  map[string]any{"kind": "Service", "name": names.VirtExportProxy},
			"tls": map[string]any{"termination": "reencrypt"},
		},
		"status": map[string]any{"ingress": []any{
			map[string]any{"host": "refused.example.com", "conditions": []any{
				map[string]any{"type": "Admitted", "status": "False", "reason": "HostAlreadyClaimed"},
			}},
			map[string]any{"host": "route.example.com", "conditions": []any{
				map[string]any{"type": "Admitted", "status": "True"},
			}},
		}},
	}}
	t.eventually("Routes are served", func() (bool, error) {
		return cluster.Client.Create(t.ctx, route.DeepCopy()) == nil, nil
	})
	t.waitOutside(export, "route.example.com")
	t.waitProxyPods(proxy, 2)
	t.must(cluster.Client.Delete(t.ctx, route))
	t.waitOutside(export, "")
	t.must(cluster.Client.Delete(t.ctx, export))
	// The garbage collector begins anew with the new kind, and is late.
	t.must(client.IgnoreNotFound(cluster.RemovePod(t.ctx, pod)))
}

func routeDefinition() *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "routes.route.openshift.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "route.openshift.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "routes", Singular: "route", Kind: "Route", ListKind: "RouteList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}},
			}},
		},
	}
}

// exportProxy makes the Deployment, with a pod too many.
func (t *test) exportProxy() *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{names.LabelComponent: names.VirtExportProxy}
	proxy := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.VirtExportProxy},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/c"}}},
			},
		},
	}
	t.must(cluster.Client.Create(t.ctx, proxy))
	t.Cleanup(func() { t.must(cluster.Client.Delete(context.Background(), proxy)) }) // t.ctx is over
	return proxy
}

func (t *test) waitProxyPods(of *appsv1.Deployment, want int32) {
	t.Helper()
	t.eventually("the proxy has its replicas", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(of), of)
		return of.Spec.Replicas != nil && *of.Spec.Replicas == want, err
	})
}

// waitOutside waits until an export's external link has a host; "" for no link.
func (t *test) waitOutside(export *v1beta1.VirtualMachineExport, host string) {
	t.Helper()
	t.eventually("its external link has host "+host, func() (bool, error) {
		if err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(export), export); err != nil {
			return false, err
		}
		links := export.Status.Links
		if links == nil || links.External == nil {
			return links != nil && host == "", nil
		}
		return exports.AddressOf(links.External, export.Namespace, export.Name) ==
			exports.External(host, export.Namespace, export.Name), nil
	})
}
