package multipolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// Input is what Rules are compiled from.
type Input struct {
	// Namespace is the guest's, Labels are those of its pod, Ports those that its interfaces list.
	Namespace string
	Labels    map[string]string
	Ports     []corev1.ContainerPort
	// Interfaces are the guest's interfaces on networks of Multus, by their names: the networks that each may be on,
	// NAMESPACE/NAME, of which the first is that of its VMI (Networks).
	Interfaces map[string][]string
	// Policies are those of the guest's namespace.
	Policies []MultiNetworkPolicy
	// Peers are pods on networks of Multus, Namespaces the labels of all namespaces that have some.
	Peers      []Peer
	Namespaces map[string]map[string]string
}

// On returns a VMI's interfaces on networks of Multus that a bridge in its pod connects: NAMESPACE/NAME by their names;
// those that are to be absent, too, since the guest may have them still. (A tap of a CNI plugin's, too, for which
// nothing is made.)
func On(vmi *v1.VirtualMachineInstance) map[string]string {
	var out map[string]string
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if nic.SRIOV != nil {
			continue
		}
		i := slices.IndexFunc(vmi.Spec.Networks, func(n v1.Network) bool { return n.Name == nic.Name })
		if i < 0 || vmi.Spec.Networks[i].Multus == nil {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[nic.Name] = macaddress.Network(vmi.Namespace, &vmi.Spec.Networks[i])
	}
	return out
}

// Compile returns what holds for a guest. selects are the networks of the policies that hold and select pods by labels:
// Peers on these and Namespaces matter. A policy that cannot be read holds for all of its namespace's pods on its
// networks, and allows nothing.
func Compile(in *Input) (rules Rules, selects []string) {
	policies := slices.Clone(in.Policies)
	slices.SortFunc(policies, func(a, b MultiNetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	rules = make(Rules, len(in.Interfaces))
	for name, networks := range in.Interfaces {
		var all []Interface
		for _, network := range networks {
			nic, of := in.on(network, policies)
			all, selects = append(all, nic), append(selects, of...)
		}
		first := all[0]
		first.Others = slices.Clip(all[1:])
		if len(first.Others) == 0 {
			first.Others = nil
		}
		rules[name] = first
	}
	slices.Sort(selects)
	return rules, slices.Compact(selects)
}

// on returns what holds on one network, and the networks of those policies of it that select pods by labels.
func (in *Input) on(network string, policies []MultiNetworkPolicy) (nic Interface, selects []string) {
	nic.Network = network
	for i := range policies {
		p := &policies[i]
		if p.Namespace != in.Namespace || p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
			continue
		}
		networks := p.Networks()
		if !slices.Contains(networks, network) {
			continue
		}
		c := compiling{in: in, networks: networks}
		if compiled, holds := c.policy(p); holds {
			nic.Policies = append(nic.Policies, compiled)
			if c.selects {
				selects = append(selects, networks...)
			}
		}
	}
	return nic, selects
}

// compiling is the work on one policy.
type compiling struct {
	in       *Input
	networks []string
	wrong    []string
	selects  bool
}

func (c *compiling) policy(p *MultiNetworkPolicy) (out Policy, holds bool) {
	out.Name = p.Name
	spec, err := p.Parse()
	if err != nil {
		out.Ingress, out.Egress, out.Wrong = &Direction{}, &Direction{}, []string{err.Error()}
		return out, true
	}
	ingress, egress := c.directions(spec)
	pods, err := selectorOf(&spec.PodSelector)
	switch {
	case err != nil:
		c.wrong = append(c.wrong, fmt.Sprintf("spec.podSelector: %v", err))
		spec.Ingress, spec.Egress = nil, nil
	case !pods.Matches(labels.Set(c.in.Labels)):
		return out, false
	}
	if ingress {
		out.Ingress = &Direction{}
		for i, r := range spec.Ingress {
			c.rule(out.Ingress, fmt.Sprintf("spec.ingress[%d]", i), r.From, r.Ports, false)
		}
	}
	if egress {
		out.Egress = &Direction{}
		for i, r := range spec.Egress {
			c.rule(out.Egress, fmt.Sprintf("spec.egress[%d]", i), r.To, r.Ports, true)
		}
	}
	out.Wrong = c.wrong
	return out, ingress || egress
}

// directions returns what a policy is for. One that does not say so is for ingress, and for egress when it has rules
// for that; so is one that says what is no direction.
func (c *compiling) directions(spec *networkingv1.NetworkPolicySpec) (ingress, egress bool) {
	for _, t := range spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			ingress = true
		case networkingv1.PolicyTypeEgress:
			egress = true
		default:
			c.wrong = append(c.wrong, fmt.Sprintf("spec.policyTypes: %q is not Ingress or Egress", t))
		}
	}
	if !ingress && !egress {
		return true, len(spec.Egress) > 0
	}
	return ingress, egress
}

// rule adds what a rule allows: one Rule, or several where peers have other ports of the same names.
func (c *compiling) rule(
	d *Direction, where string, listed []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort,
	egress bool,
) {
	pods, blocks := c.peersOf(where, listed)
	if !egress || !hasNames(ports) {
		c.add(d, where, Rule{Any: len(listed) == 0, Blocks: blocks}, pods, ports, c.in.Ports)
		return
	}
	if len(listed) == 0 {
		pods = c.everybody()
	}
	if numbers := unnamed(ports); len(numbers) > 0 {
		c.add(d, where, Rule{Any: len(listed) == 0, Blocks: blocks}, nil, numbers, nil)
	}
	for _, pod := range pods {
		c.add(d, where, Rule{}, []*Peer{pod}, ports, pod.Ports)
	}
}

// everybody returns all pods on the policy's networks.
func (c *compiling) everybody() []*Peer {
	c.selects = true
	var out []*Peer
	for i := range c.in.Peers {
		if c.on(&c.in.Peers[i]) {
			out = append(out, &c.in.Peers[i])
		}
	}
	return out
}

func unnamed(ports []networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyPort {
	return slices.DeleteFunc(slices.Clone(ports),
		func(p networkingv1.NetworkPolicyPort) bool { return hasNames([]networkingv1.NetworkPolicyPort{p}) })
}

// add completes a rule by peers and ports, and adds it unless it allows nothing.
func (c *compiling) add(
	d *Direction, where string, r Rule, pods []*Peer, ports []networkingv1.NetworkPolicyPort,
	named []corev1.ContainerPort,
) {
	r.Addresses, r.MACs = c.ends(pods)
	if !r.Any && len(r.Addresses)+len(r.MACs)+len(r.Blocks) == 0 {
		return
	}
	r.Ports = c.portsOf(where, ports, named)
	if len(r.Ports) == 0 && len(ports) > 0 {
		return
	}
	// Peers that have the same ports of a name are one rule.
	for i := range d.Rules {
		same := &d.Rules[i]
		if !r.Any && !same.Any && len(r.Blocks)+len(same.Blocks) == 0 && slices.Equal(same.Ports, r.Ports) {
			same.Addresses, same.MACs = merged(same.Addresses, r.Addresses, netip.Addr.Compare),
				merged(same.MACs, r.MACs, cmp.Compare[string])
			return
		}
	}
	d.Rules = append(d.Rules, r)
}

func (c *compiling) note(where string, err error) {
	if text := where + ": " + err.Error(); !slices.Contains(c.wrong, text) {
		c.wrong = append(c.wrong, text)
	}
}

// ends returns where pods are on the policy's networks.
func (c *compiling) ends(pods []*Peer) (addresses []netip.Addr, macs []string) {
	for _, p := range pods {
		for _, name := range c.networks {
			end := p.Ends[name]
			addresses, macs = append(addresses, end.Addresses...), append(macs, end.MACs...)
		}
	}
	return merged(addresses, nil, netip.Addr.Compare), merged(macs, nil, cmp.Compare[string])
}

func merged[T comparable](a, b []T, compare func(T, T) int) []T {
	out := slices.Concat(a, b)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// Enforced returns the NetworkPolicy that says of the pod network what a policy is taken to say of its networks.
func (p *MultiNetworkPolicy) Enforced() networkingv1.NetworkPolicy {
	out := networkingv1.NetworkPolicy{ObjectMeta: *p.DeepCopy()}
	spec, err := p.Parse()
	if err != nil {
		out.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
		return out
	}
	var c compiling
	ingress, egress := c.directions(spec)
	out.Spec = *spec
	out.Spec.PolicyTypes = nil
	if ingress {
		out.Spec.PolicyTypes = append(out.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	}
	if egress {
		out.Spec.PolicyTypes = append(out.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
	if _, err := selectorOf(&spec.PodSelector); err != nil {
		out.Spec.PodSelector, out.Spec.Ingress, out.Spec.Egress = metav1.LabelSelector{}, nil, nil
	}
	return out
}
