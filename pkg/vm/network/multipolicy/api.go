// Package multipolicy turns MultiNetworkPolicies into what a guest on networks besides the pod network may send and
// receive. A MultiNetworkPolicy (k8s.cni.cncf.io/v1beta1) says of networks of Multus what a NetworkPolicy says of the
// pod network: https://github.com/k8snetworkplumbingwg/multi-networkpolicy.
//
//	api.go      the kind, as far as it is read
//	compile.go  policies, pods and namespaces to Rules; pure
//	peers.go    who a rule's selectors and blocks mean
//	ports.go    which ports a rule means
//	rules.go    Rules, and the text of them in an annotation
//
// virt-controller compiles and writes the annotation, virt-handler reads it and has pkg/vm/network/apply put the rules
// into the guest's pod.
package multipolicy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version is the group and version of MultiNetworkPolicy, Resource its plural name, Kind its kind.
var Version = schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1beta1"}

// The names of the kind.
const (
	Kind     = "MultiNetworkPolicy"
	Resource = "multi-networkpolicies"
)

// AnnotationFor is the annotation of a policy with the networks that it is for: names of NetworkAttachmentDefinitions,
// with commas between, NAMESPACE/NAME or those of the policy's own namespace.
const AnnotationFor = "k8s.v1.cni.cncf.io/policy-for"

// MultiNetworkPolicy is a policy for networks of Multus. Its spec is kept as it is written: the kind's definition,
// which is another project's, may let anything through, and one policy that cannot be read must not hide the others.
type MultiNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the JSON of a NetworkPolicy's spec.
	Spec json.RawMessage `json:"spec,omitempty"`
}

// MultiNetworkPolicyList is a list of them.
type MultiNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MultiNetworkPolicy `json:"items"`
}

// DeepCopyObject copies the policy.
func (p *MultiNetworkPolicy) DeepCopyObject() runtime.Object {
	out := &MultiNetworkPolicy{TypeMeta: p.TypeMeta, Spec: slices.Clone(p.Spec)}
	p.DeepCopyInto(&out.ObjectMeta)
	return out
}

// DeepCopyObject copies the list.
func (l *MultiNetworkPolicyList) DeepCopyObject() runtime.Object {
	out := &MultiNetworkPolicyList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*MultiNetworkPolicy))
	}
	return out
}

// AddToScheme registers the kind.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(Version, &MultiNetworkPolicy{}, &MultiNetworkPolicyList{})
	metav1.AddToGroupVersion(scheme, Version)
	return nil
}

// Parse returns the policy's spec.
func (p *MultiNetworkPolicy) Parse() (*networkingv1.NetworkPolicySpec, error) {
	spec := &networkingv1.NetworkPolicySpec{}
	if len(p.Spec) == 0 {
		return spec, nil
	}
	if err := json.Unmarshal(p.Spec, spec); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return spec, nil
}

// Networks returns the networks that the policy is for, as NAMESPACE/NAME; none without the annotation.
func (p *MultiNetworkPolicy) Networks() []string {
	var out []string
	for name := range strings.SplitSeq(p.Annotations[AnnotationFor], ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !strings.Contains(name, "/") {
			name = p.Namespace + "/" + name
		}
		out = append(out, name)
	}
	return out
}
