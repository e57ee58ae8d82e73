package manifests_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	v1 "kubevirt.io/api/core/v1"
)

// What users may do is what they may in KubeVirt, where its roles and ours were apart.
func TestUserRolesAreKubeVirts(t *testing.T) {
	for _, tc := range []struct {
		role, group, resource, verb string
		may                         bool
	}{
		{"kubevirt.io:default", "kubevirt.io", "kubevirts", "get", true},
		{"kubevirt.io:default", "kubevirt.io", "kubevirts", "list", true},
		{"kubevirt.io:migrate", "kubevirt.io", "virtualmachineinstancemigrations", "deletecollection", true},
		{"kubevirt.io:admin", "subresources.kubevirt.io", "virtualmachineinstances/vnc/screenshot", "get", true},
		{"kubevirt.io:edit", "subresources.kubevirt.io", "virtualmachineinstances/vnc", "get", true},
		{"kubevirt.io:edit", "subresources.kubevirt.io", "virtualmachineinstances/vnc/screenshot", "get", false},
		{"kubevirt.io:public", "kubevirt.io", "kubevirts", "get", false},
	} {
		role := find[rbacv1.ClusterRole](t, "ClusterRole", tc.role)
		may := slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, tc.group) && slices.Contains(rule.Resources, tc.resource) &&
				slices.Contains(rule.Verbs, tc.verb)
		})
		if may != tc.may {
			t.Errorf("%s may %s %s: %t", tc.role, tc.verb, tc.resource, may)
		}
	}
	binding := find[rbacv1.ClusterRoleBinding](t, "ClusterRoleBinding", "kubevirt.io:default")
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "system:authenticated" ||
		binding.RoleRef.Name != "kubevirt.io:default" {
		t.Errorf("it is bound as %+v", binding)
	}
}

// Who may view, edit or administer VMs may do the same with their snapshots, restores, clones and exports, as in
// KubeVirt: a viewer reads them, an editor makes, changes and deletes them, an administrator deletes all at once.
func TestRolesOfSnapshots(t *testing.T) {
	reads := []string{"get", "list", "watch"}
	writes := slices.Concat(reads, []string{"create", "update", "patch", "delete"})
	all := append(slices.Clone(writes), "deletecollection")
	for role, may := range map[string][]string{
		"kubevirt.io:view": reads, "kubevirt.io:edit": writes, "kubevirt.io:admin": all, "kubevirt.io:default": nil,
	} {
		rules := find[rbacv1.ClusterRole](t, "ClusterRole", role).Rules
		for resource, group := range map[string]string{
			"virtualmachinesnapshots": "snapshot.kubevirt.io", "virtualmachinesnapshotcontents": "snapshot.kubevirt.io",
			"virtualmachinerestores": "snapshot.kubevirt.io", "virtualmachineclones": "clone.kubevirt.io",
			"virtualmachineexports": "export.kubevirt.io",
		} {
			for _, verb := range all {
				allowed := slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
					return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) &&
						slices.Contains(rule.Verbs, verb)
				})
				if allowed != slices.Contains(may, verb) {
					t.Errorf("%s may %s %s: %t", role, verb, resource, allowed)
				}
			}
		}
	}
}

// Who may clone what is in a namespace to another one may edit it, not only view it.
func TestRolesOfClonesToAnotherNamespace(t *testing.T) {
	for role, may := range map[string]bool{
		"kubevirt.io:view": false, "kubevirt.io:edit": true, "kubevirt.io:admin": true, "kubevirt.io:default": false,
	} {
		rules := find[rbacv1.ClusterRole](t, "ClusterRole", role).Rules
		allowed := slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, "clone.kubevirt.io") &&
				slices.Contains(rule.Resources, "virtualmachineclones/source") && slices.Contains(rule.Verbs, "create")
		})
		if allowed != may {
			t.Errorf("%s may create virtualmachineclones/source: %t", role, allowed)
		}
	}
}

// The standard roles include ours of the same name, and no other role does.
func TestRolesAreAggregated(t *testing.T) {
	const to = "rbac.authorization.k8s.io/aggregate-to-"
	for role, standard := range map[string]string{
		"kubevirt.io:view": "view", "kubevirt.io:edit": "edit", "kubevirt.io:admin": "admin", "kubevirt.io:default": "",
	} {
		labels := find[rbacv1.ClusterRole](t, "ClusterRole", role).Labels
		for _, other := range []string{"view", "edit", "admin"} {
			if in := labels[to+other] == "true"; in != (other == standard) {
				t.Errorf("%s is part of %s: %t", role, other, in)
			}
		}
	}
}

// The KubeVirt resource of a new installation has a configuration, for clients that patch below it.
func TestConfigurationIsWrittenOut(t *testing.T) {
	if kv := find[v1.KubeVirt](t, "KubeVirt", "kubevirt"); kv.Spec.Configuration.DeveloperConfiguration == nil {
		t.Errorf("spec.configuration is %+v", kv.Spec.Configuration)
	}
}

// A MigrationPolicy has a status to write, as KubeVirt's clients do, and the fields below its spec are kept for
// virt-api to refuse.
func TestPoliciesHaveAStatus(t *testing.T) {
	for _, o := range decode(t, "crds/migrations*.yaml") {
		for _, version := range typed[apiextensionsv1.CustomResourceDefinition](t, o).Spec.Versions {
			if version.Subresources == nil || version.Subresources.Status == nil {
				t.Errorf("%s %s has no status", o.GetName(), version.Name)
			}
			spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
			if keep := spec.XPreserveUnknownFields; keep == nil || !*keep {
				t.Errorf("%s %s drops unknown fields", o.GetName(), version.Name)
			}
		}
	}
}
