package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// resources says under which resource the API serves the kinds that we install. We know them, so the
// cluster need not be asked.
var resources = map[schema.GroupKind]schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: definitions,
	{Group: "", Kind: "Namespace"}:                                    namespaces,
	{Group: "", Kind: "ServiceAccount"}:                               serviceAccounts,
	{Group: "", Kind: "Service"}: {
		Version:  "v1",
		Resource: "services",
	},
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}: {
		Group:   "scheduling.k8s.io",
		Version: "v1", Resource: "priorityclasses",
	},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:        rbac("clusterroles"),
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: rbac("clusterrolebindings"),
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:               rbac("roles"),
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        rbac("rolebindings"),
	{Group: "apps", Kind: "Deployment"}:                              deployments,
	{Group: "apps", Kind: "DaemonSet"}:                               daemonsets,
	{Group: "policy", Kind: "PodDisruptionBudget"}: {
		Group: "policy", Version: "v1",
		Resource: "poddisruptionbudgets",
	},
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: {
		Group:   "networking.k8s.io",
		Version: "v1", Resource: "networkpolicies",
	},
	{Group: "apiregistration.k8s.io", Kind: "APIService"}: apiservices,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}: admission(
		"mutatingwebhookconfigurations",
	),
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: admission(
		"validatingwebhookconfigurations",
	),
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}: admission(
		"validatingadmissionpolicies",
	),
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: admission(
		"validatingadmissionpolicybindings",
	),
	{Group: "", Kind: "ConfigMap"}:                   {Version: "v1", Resource: "configmaps"},
	{Group: monitoringGroup, Kind: "ServiceMonitor"}: monitors,
	{Group: monitoringGroup, Kind: "PrometheusRule"}: prometheusRules,
	{Group: v1.GroupVersion.Group, Kind: "KubeVirt"}: kubevirts,

	{
		Group: v1beta1.SchemeGroupVersion.Group,
		Kind:  "VirtualMachineClusterInstancetype",
	}: v1beta1.SchemeGroupVersion.WithResource("virtualmachineclusterinstancetypes"),
	{
		Group: v1beta1.SchemeGroupVersion.Group,
		Kind:  "VirtualMachineClusterPreference",
	}: v1beta1.SchemeGroupVersion.WithResource("virtualmachineclusterpreferences"),
}

var (
	definitions = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions",
	}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	nodes       = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	daemonsets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	apiservices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	kubevirts   = v1.GroupVersion.WithResource("kubevirts")
)

func rbac(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
}

func admission(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

// at returns the client for an object's resource, in the object's namespace if it has one.
func at(client dynamic.Interface, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	resource, known := resources[o.GroupVersionKind().GroupKind()]
	if !known {
		return nil, fmt.Errorf("manifests hold a %s, whose resource is not known here", o.GroupVersionKind())
	}
	if ns := o.GetNamespace(); ns != "" {
		return client.Resource(resource).Namespace(ns), nil
	}
	return client.Resource(resource), nil
}

// Name returns how kubectl would name the object: deployment.apps/virt-api.
func Name(o *unstructured.Unstructured) string {
	kind := lower(o.GetKind())
	if group := o.GroupVersionKind().Group; group != "" {
		kind += "." + group
	}
	return kind + "/" + o.GetName()
}
