// Package netpolicy says which ports of a pod the NetworkPolicies of a cluster leave open to a peer. It knows what
// networking.k8s.io/v1 defines and nothing of network plugins: their own kinds of policies, or what they do where
// Kubernetes leaves it to them. It is pure; package gather reads the policies.
//
//	netpolicy.go  which policies select a pod, and what their rules allow together
//	peer.go       whether a rule's peers match, as far as labels are known
//	ports.go      sets of ports
//
// The rules are those of the API's own documentation
// (https://kubernetes.io/docs/concepts/services-networking/network-policies/): a pod that no policy selects for a
// direction is open in it; one that is selected is open to what any rule of any of these policies allows.
package netpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Peer is one end of a connection.
type Peer struct {
	// Pod is nil for an end outside of the cluster.
	Pod *corev1.Pod
	// Namespace has the labels of the pod's namespace; nil when they could not be read.
	Namespace map[string]string
	// Address is the end's address in the family of the connection.
	Address netip.Addr
}

// Result is what the policies of one direction say together.
type Result struct {
	// Selecting names the policies that select the pod for the direction, in order. Without one all is allowed.
	Selecting []string
	// Allowed are the ports that a rule allows. Possible are these, and those that a rule allows if the labels that
	// could not be read match.
	Allowed, Possible Ports
	// Invalid says of policies what in them has no meaning, and matches nothing.
	Invalid []string
	// Exempt says why policies do not hold for the connection; empty where they do.
	Exempt string
	// Unread says which policies are not known; empty where all are.
	Unread string
}

// Open returns what holds where there are no policies.
func Open() Result { return Result{Allowed: All(), Possible: All()} }

// Ingress returns to which ports of target the source may connect by the policies of the target's namespace.
func Ingress(policies []networkingv1.NetworkPolicy, target, source Peer, protocol corev1.Protocol) Result {
	if reason := exempt(target, source); reason != "" {
		return Result{Allowed: All(), Possible: All(), Exempt: reason}
	}
	d := decision{target: target.Pod, protocol: protocol}
	for _, policy := range selecting(&d, policies, target.Pod, networkingv1.PolicyTypeIngress) {
		for i := range policy.Spec.Ingress {
			rule := &policy.Spec.Ingress[i]
			d.rule(policy, fmt.Sprintf("ingress[%d]", i), rule.From, rule.Ports, source)
		}
	}
	return d.result()
}

// Egress returns to which ports of target the source may connect by the policies of the source's namespace.
func Egress(policies []networkingv1.NetworkPolicy, source, target Peer, protocol corev1.Protocol) Result {
	switch {
	case source.Pod == nil:
		return Result{Allowed: All(), Possible: All(), Exempt: "the source is outside of the cluster"}
	case source.Pod.Spec.HostNetwork:
		return Result{Allowed: All(), Possible: All(), Exempt: "the source is in the network of its node"}
	case same(source.Pod, target.Pod):
		return Result{Allowed: All(), Possible: All(), Exempt: "a pod always reaches itself"}
	}
	d := decision{target: target.Pod, protocol: protocol}
	for _, policy := range selecting(&d, policies, source.Pod, networkingv1.PolicyTypeEgress) {
		for i := range policy.Spec.Egress {
			rule := &policy.Spec.Egress[i]
			d.rule(policy, fmt.Sprintf("egress[%d]", i), rule.To, rule.Ports, target)
		}
	}
	return d.result()
}

// exempt returns why no policy for the target holds for what comes from the source.
func exempt(target, source Peer) string {
	switch {
	case target.Pod.Spec.HostNetwork:
		return "the target is in the network of its node"
	case same(source.Pod, target.Pod):
		return "a pod always reaches itself"
	case source.Pod == nil && onNode(target.Pod, source.Address),
		source.Pod != nil && source.Pod.Spec.HostNetwork && source.Pod.Spec.NodeName != "" &&
			source.Pod.Spec.NodeName == target.Pod.Spec.NodeName:
		return "a pod is always reached from its own node"
	}
	return ""
}

func same(a, b *corev1.Pod) bool {
	return a != nil && b != nil && a.Namespace == b.Namespace && a.Name == b.Name
}

// onNode reports whether an address is of the node that the pod is on.
func onNode(pod *corev1.Pod, address netip.Addr) bool {
	for _, ip := range append(pod.Status.HostIPs, corev1.HostIP{IP: pod.Status.HostIP}) {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Unmap() == address {
			return true
		}
	}
	return false
}

// decision gathers what rules allow.
type decision struct {
	// target is the pod whose container ports named ports are.
	target    *corev1.Pod
	protocol  corev1.Protocol
	selecting []string
	allowed   Ports
	possible  Ports
	invalid   []string
}

func (d *decision) result() Result {
	r := Result{Selecting: d.selecting, Allowed: d.allowed, Possible: d.possible, Invalid: d.invalid}
	if len(d.selecting) == 0 {
		r.Allowed, r.Possible = All(), All()
	}
	return r
}

func (d *decision) wrong(policy *networkingv1.NetworkPolicy, where string, err error) {
	text := fmt.Sprintf("networkpolicy/%s in namespace %s, spec.%s: %v", policy.Name, policy.Namespace, where, err)
	if !slices.Contains(d.invalid, text) {
		d.invalid = append(d.invalid, text)
	}
}

// selecting returns the policies of the pod's namespace that select the pod for the direction, by name.
func selecting(
	d *decision, policies []networkingv1.NetworkPolicy, pod *corev1.Pod, direction networkingv1.PolicyType,
) []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy
	for i := range policies {
		policy := &policies[i]
		if policy.Namespace != pod.Namespace || !directed(policy, direction) {
			continue
		}
		m, err := matches(&policy.Spec.PodSelector, pod.Labels)
		if err != nil {
			d.wrong(policy, "podSelector", err)
		}
		if m == yes {
			out = append(out, policy)
		}
	}
	slices.SortFunc(out, func(a, b *networkingv1.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	for _, policy := range out {
		d.selecting = append(d.selecting, policy.Name)
	}
	return out
}

// directed reports whether a policy is for a direction. One that does not say so is for ingress, and for egress when it
// has rules for that.
func directed(policy *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(policy.Spec.PolicyTypes) > 0 {
		return slices.Contains(policy.Spec.PolicyTypes, direction)
	}
	return direction == networkingv1.PolicyTypeIngress || len(policy.Spec.Egress) > 0
}

// rule adds the ports that a rule allows to or from the peer.
func (d *decision) rule(
	policy *networkingv1.NetworkPolicy, where string, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort, peer Peer,
) {
	found := no
	if len(peers) == 0 {
		found = yes
	}
	for i := range peers {
		m, err := matchesPeer(policy, &peers[i], peer)
		if err != nil {
			d.wrong(policy, where, err)
		}
		found = max(found, m)
	}
	if found == no {
		return
	}
	open := d.ports(ports)
	d.possible = d.possible.Union(open)
	if found == yes {
		d.allowed = d.allowed.Union(open)
	}
}

// ports returns what a rule's ports are of the protocol; none listed are all.
func (d *decision) ports(listed []networkingv1.NetworkPolicyPort) Ports {
	if len(listed) == 0 {
		return All()
	}
	var out Ports
	for _, p := range listed {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		switch {
		case protocol != d.protocol:
		case p.Port == nil:
			return All()
		case p.Port.Type == intstr.String:
			for _, number := range named(d.target, p.Port.StrVal, protocol) {
				out = out.Union(One(number))
			}
		default:
			r := Range{p.Port.IntVal, p.Port.IntVal}
			if p.EndPort != nil {
				r.Last = *p.EndPort
			}
			if r.First <= r.Last {
				out = out.Union(Ports{r})
			}
		}
	}
	return out
}

// named returns the numbers that a pod's containers give a port of a name.
func named(pod *corev1.Pod, name string, protocol corev1.Protocol) []int32 {
	if pod == nil {
		return nil
	}
	var out []int32
	for _, c := range append(slices.Clone(pod.Spec.Containers), restartable(pod)...) {
		for _, port := range c.Ports {
			if port.Name == name && cmp.Or(port.Protocol, corev1.ProtocolTCP) == protocol {
				out = append(out, port.ContainerPort)
			}
		}
	}
	return out
}

// restartable returns the init containers that go on running beside the others.
func restartable(pod *corev1.Pod) []corev1.Container {
	var out []corev1.Container
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}
