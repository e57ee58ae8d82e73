package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/client/action/client"
)

const (
	kindPolicy  = "ValidatingAdmissionPolicy"
	kindBinding = kindPolicy + "Binding"
	served      = "/apis/admissionregistration.k8s.io/v1/"
)

// Policies are admission policies and their bindings, by name.
type Policies struct {
	Policies map[string]admissionv1.ValidatingAdmissionPolicySpec
	Bindings map[string]admissionv1.ValidatingAdmissionPolicyBindingSpec
}

func newPolicies() Policies {
	return Policies{
		Policies: map[string]admissionv1.ValidatingAdmissionPolicySpec{},
		Bindings: map[string]admissionv1.ValidatingAdmissionPolicyBindingSpec{},
	}
}

// shipped returns the policies of the manifests: every base/policy-*.yaml.
func shipped() (Policies, error) {
	out := newPolicies()
	files, err := fs.Glob(manifests.FS, "base/policy-*.yaml")
	if err != nil {
		return out, err
	}
	for _, name := range files {
		text, err := manifests.FS.ReadFile(name)
		if err != nil {
			return out, err
		}
		if err := out.read(text); err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// read adds the policies of one file.
func (p Policies) read(text []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch o.GetKind() {
		case kindPolicy:
			var policy admissionv1.ValidatingAdmissionPolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
				return err
			}
			p.Policies[policy.Name] = policy.Spec
		case kindBinding:
			var binding admissionv1.ValidatingAdmissionPolicyBinding
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
				return err
			}
			p.Bindings[binding.Name] = binding.Spec
		}
	}
}

// policies reads those of the cluster.
func policies(ctx context.Context, c *client.Client) (Policies, error) {
	out := newPolicies()
	var all admissionv1.ValidatingAdmissionPolicyList
	if err := c.Read(ctx, served+"validatingadmissionpolicies", nil, &all); err != nil {
		return out, err
	}
	for i := range all.Items {
		out.Policies[all.Items[i].Name] = all.Items[i].Spec
	}
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := c.Read(ctx, served+"validatingadmissionpolicybindings", nil, &bindings); err != nil {
		return out, err
	}
	for i := range bindings.Items {
		out.Bindings[bindings.Items[i].Name] = bindings.Items[i].Spec
	}
	return out, nil
}

// policies looks whether the cluster has the policies that hold what rights alone do not.
func (e *examination) policies() {
	have, err := e.Policies.Value, e.Policies.Err
	var want Policies
	if err == nil {
		want, err = shipped()
	}
	if err != nil {
		e.skip(Stack, "policies", "admission policies are", err)
		return
	}
	var missing, changed []string
	for name, spec := range want.Policies {
		switch found, ok := have.Policies[name]; {
		case !ok:
			missing = append(missing, name)
		case !equality.Semantic.DeepEqual(found.Validations, spec.Validations),
			!equality.Semantic.DeepEqual(found.MatchConditions, spec.MatchConditions),
			!equality.Semantic.DeepEqual(found.Variables, spec.Variables):
			changed = append(changed, name)
		}
	}
	for name, spec := range want.Bindings {
		switch found, ok := have.Bindings[name]; {
		case !ok:
			missing = append(missing, "the binding of "+spec.PolicyName)
		case found.PolicyName != spec.PolicyName, !slices.Equal(found.ValidationActions, spec.ValidationActions):
			changed = append(changed, "the binding of "+spec.PolicyName)
		}
	}
	slices.Sort(missing)
	slices.Sort(changed)
	switch {
	case len(missing) > 0:
		e.add(Stack, "policies", Failed,
			"admission policies are missing, without which tenants and nodes may do more than they should: "+
				strings.Join(missing, ", "), install)
	case len(changed) > 0:
		e.add(Stack, "policies", Warning, "admission policies are not those of this version: "+
			strings.Join(changed, ", "),
			install)
	default:
		e.add(Stack, "policies", OK, fmt.Sprintf("%d admission policies are in force", len(want.Policies)))
	}
}
