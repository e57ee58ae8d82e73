package cluster

import (
	"context"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/pki"
)

// networkDefinitions is the CRD by which Multus knows networks, networkPolicies that of policies for them, from its
// project's public specification.
const (
	networkDefinitions = "network-attachment-definitions.k8s.cni.cncf.io"
	networkPolicies    = "multi-networkpolicies.k8s.cni.cncf.io"
)

// multusPaths are there once Multus can do its work.
var multusPaths = []string{
	"/apis/k8s.cni.cncf.io/v1/network-attachment-definitions",
	"/apis/k8s.cni.cncf.io/v1beta1/multi-networkpolicies",
	"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/" + pki.Multus,
}

// serveMultus makes what Multus needs of the API: the CRDs, and the right to read it and to write into pods what
// it has done.
func serveMultus(ctx context.Context, admin kubeconfig.Credentials) error {
	if err := makeMultus(ctx, admin); err != nil {
		return fmt.Errorf("set up Multus: %w", err)
	}
	<-ctx.Done()
	return nil
}

func makeMultus(ctx context.Context, admin kubeconfig.Credentials) error {
	client, err := clientFor(admin, "virt-local-multus")
	if err != nil {
		return err
	}
	definitions, err := apiextensions.NewForConfig(configFor(admin, "virt-local-multus"))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{networkDefinition(), networkPolicy()} {
		if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().
			Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create CRD: %w", err)
		}
	}
	meta := metav1.ObjectMeta{Name: pki.Multus}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"update"}},
		{
			APIGroups: []string{"k8s.cni.cncf.io"}, Resources: []string{"network-attachment-definitions"},
			Verbs: []string{"get"},
		},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ClusterRole: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: pki.MultusUser}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ClusterRoleBinding: %w", err)
	}
	return nil
}

// networkDefinition returns the kind of networks.
func networkDefinition() *apiextensionsv1.CustomResourceDefinition {
	return definition(networkDefinitions, "v1", apiextensionsv1.CustomResourceDefinitionNames{
		Singular: "network-attachment-definition", Kind: "NetworkAttachmentDefinition",
		ShortNames: []string{"net-attach-def"},
	}, apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"config": {Type: "string", Description: "A CNI configuration, or list of them, as JSON."},
		},
	})
}

// networkPolicy returns the kind of policies, whose spec is that of a NetworkPolicy and is not checked here.
func networkPolicy() *apiextensionsv1.CustomResourceDefinition {
	return definition(networkPolicies, "v1beta1", apiextensionsv1.CustomResourceDefinitionNames{
		Singular: "multi-networkpolicy", Kind: "MultiNetworkPolicy", ShortNames: []string{"multi-policy"},
	}, apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)})
}

// definition returns a namespaced kind of one version. name is that of the CRD, PLURAL.GROUP.
func definition(
	name, version string, names apiextensionsv1.CustomResourceDefinitionNames, spec apiextensionsv1.JSONSchemaProps,
) *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	plural, group, _ := strings.Cut(name, ".")
	names.Plural, names.ListKind = plural, names.Kind+"List"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"apiVersion": text, "kind": text, "metadata": {Type: "object"}, "spec": spec,
					},
				}},
			}},
		},
	}
}
