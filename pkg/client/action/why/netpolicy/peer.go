package netpolicy

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// match is whether something matches, as far as is known.
type match int

const (
	no match = iota
	perhaps
	yes
)

// matchesPeer reports whether a peer of a policy's rule is the end of a connection. An error says what has no meaning;
// it matches nothing.
func matchesPeer(
	policy *networkingv1.NetworkPolicy, rule *networkingv1.NetworkPolicyPeer, peer Peer,
) (match, error) {
	if rule.IPBlock != nil {
		return inBlock(rule.IPBlock, peer.Address)
	}
	// A pod in the network of its node is that node to others: no selector finds it.
	if peer.Pod == nil || peer.Pod.Spec.HostNetwork || rule.PodSelector == nil && rule.NamespaceSelector == nil {
		return no, nil
	}
	found := yes
	switch {
	case rule.NamespaceSelector != nil:
		m, err := matchesNamespace(rule.NamespaceSelector, peer)
		if err != nil {
			return no, fmt.Errorf("namespaceSelector: %w", err)
		}
		found = m
	case peer.Pod.Namespace != policy.Namespace:
		return no, nil
	}
	if rule.PodSelector != nil {
		m, err := matches(rule.PodSelector, peer.Pod.Labels)
		if err != nil {
			return no, fmt.Errorf("podSelector: %w", err)
		}
		found = min(found, m)
	}
	return found, nil
}

func matches(selector *metav1.LabelSelector, of map[string]string) (match, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return no, err
	}
	if s.Matches(labels.Set(of)) {
		return yes, nil
	}
	return no, nil
}

// matchesNamespace compares the labels of the peer's namespace. Of one that could not be read the label with its name
// is known, which the API server keeps.
func matchesNamespace(selector *metav1.LabelSelector, peer Peer) (match, error) {
	if peer.Namespace != nil {
		return matches(selector, peer.Namespace)
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return no, err
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return no, nil
	}
	found := yes
	for i := range requirements {
		switch {
		case requirements[i].Key() != corev1.LabelMetadataName:
			found = min(found, perhaps)
		case !requirements[i].Matches(labels.Set{corev1.LabelMetadataName: peer.Pod.Namespace}):
			return no, nil
		}
	}
	return found, nil
}

func inBlock(block *networkingv1.IPBlock, address netip.Addr) (match, error) {
	cidr, err := netip.ParsePrefix(block.CIDR)
	if err != nil {
		return no, fmt.Errorf("ipBlock: %w", err)
	}
	if !cidr.Contains(address) {
		return no, nil
	}
	for _, text := range block.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil {
			return no, fmt.Errorf("ipBlock: except: %w", err)
		}
		if except.Contains(address) {
			return no, nil
		}
	}
	return yes, nil
}
