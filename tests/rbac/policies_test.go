package rbac

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// unbound are rights of virt-handler to write that no policy binds to its node: nothing is stored.
var unbound = []string{"CREATE tokenreviews.authentication.k8s.io", "CREATE subjectaccessreviews.authorization.k8s.io"}

// What virt-handler has rights to write is what its policies look at: a right more needs a policy, and a policy for
// what it may not do is one too many.
func TestPoliciesOfVirtHandler(t *testing.T) {
	rights, err := Granted()
	if err != nil {
		t.Fatal(err)
	}
	operations := map[string]string{
		"create":           "CREATE",
		"update":           "UPDATE",
		"patch":            "UPDATE",
		"delete":           "DELETE",
		"deletecollection": "DELETE",
	}
	var may []string
	for _, r := range rights {
		if operation := operations[r.Verb]; r.Component == names.VirtHandler && operation != "" {
			may = append(may, write(operation, r.Group, r.Resource))
		}
	}
	looked := slices.Clone(unbound)
	for _, policy := range virtHandlerPolicies(t) {
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, operation := range rule.Operations {
						looked = append(looked, write(string(operation), group, resource))
					}
				}
			}
		}
	}
	slices.Sort(may)
	slices.Sort(looked)
	if may = slices.Compact(may); !slices.Equal(may, looked) {
		t.Errorf("virt-handler may  %q\npolicies look at %q", may, looked)
	}
}

// TestConditionsOfController: the policy knows which conditions of VMIs and migrations virt-controller alone writes,
// and compares them whatever else virt-handler may change.
func TestConditionsOfController(t *testing.T) {
	list := conditions.OfController()
	slices.Sort(list)
	want := "['" + strings.Join(list, "', '") + "']"
	for _, policy := range virtHandlerPolicies(t) {
		if policy.Name != "virtkit-virt-handler-instances" {
			continue
		}
		for _, v := range policy.Spec.Variables {
			words := strings.Split(strings.Trim(strings.Join(strings.Fields(v.Expression), " "), "[]"), ", ")
			slices.Sort(words)
			if got := "[" + strings.Join(words, ", ") + "]"; v.Name == "ofController" && got != want {
				t.Errorf("the policy has %s, conditions.OfController %s", got, want)
			}
		}
		const same = "variables.newConditions == variables.oldConditions"
		if !slices.ContainsFunc(policy.Spec.Validations, func(v admissionv1.Validation) bool {
			return strings.Join(strings.Fields(v.Expression), " ") == same
		}) {
			t.Errorf("no validation is %s", same)
		}
		return
	}
	t.Error("no policy is about VMIs")
}

func write(operation, group, resource string) string {
	if group != "" {
		resource += "." + group
	}
	return fmt.Sprintf("%s %s", operation, resource)
}

// virtHandlerPolicies are the policies about virt-handler; each refuses, and is bound.
func virtHandlerPolicies(t *testing.T) []admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	text, err := manifests.FS.ReadFile("base/policy-virt-handler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var policies []admissionv1.ValidatingAdmissionPolicy
	bound := map[string]bool{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
			var binding admissionv1.ValidatingAdmissionPolicyBinding
			convert(t, o, &binding)
			bound[binding.Spec.PolicyName] = slices.Equal(binding.Spec.ValidationActions,
				[]admissionv1.ValidationAction{admissionv1.Deny}) && binding.Spec.MatchResources == nil
			continue
		}
		var policy admissionv1.ValidatingAdmissionPolicy
		convert(t, o, &policy)
		policies = append(policies, policy)
	}
	for _, policy := range policies {
		if !bound[policy.Name] || *policy.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("policy %s does not refuse everywhere", policy.Name)
		}
		matching := policy.Spec.MatchConditions
		if len(matching) != 1 ||
			!strings.Contains(matching[0].Expression, "'"+serviceAccounts+names.VirtHandler+"'") {
			t.Errorf("policy %s is not about virt-handler: %v", policy.Name, matching)
		}
	}
	return policies
}

func convert(t *testing.T, o unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}
