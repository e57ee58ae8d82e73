package why

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/why/netpolicy"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// Shared returns the guest's interfaces on networks of Multus that a pod is on, too: NAMESPACE/NAME of the network by
// the interface's name.
func (f *Facts) Shared(pod *corev1.Pod) map[string]string {
	spec := f.Spec()
	if spec == nil || pod == nil {
		return nil
	}
	vmi := &v1.VirtualMachineInstance{Spec: *spec}
	vmi.Namespace = f.Namespace
	ends := multipolicy.EndsOf(pod.Annotations)
	shared := multipolicy.On(vmi)
	maps.DeleteFunc(shared, func(_, on string) bool { _, there := ends[on]; return !there })
	return shared
}

// networks adds a path for each network of Multus that both ends are on, and the MultiNetworkPolicies that drop the
// connection there. Those for what the source sends hold where virtkit puts them: in the pods of guests.
func (c *connecting) networks(pod *corev1.Pod) {
	source := c.f.Source.Pod
	shared := c.f.Shared(source)
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		on := shared[name]
		for _, p := range c.pathsOn(name, on) {
			target := netpolicy.Peer{Pod: pod, Namespace: c.f.Namespaces[c.Namespace], Address: p.to}
			from := netpolicy.Peer{Pod: source, Namespace: c.f.Namespaces[source.Namespace], Address: p.from}
			p.ingress = c.onNetwork(c.Namespace, on, func(of []networkingv1.NetworkPolicy) netpolicy.Result {
				return netpolicy.Ingress(of, target, from, c.f.Protocol)
			})
			p.egress = netpolicy.Result{Allowed: netpolicy.All(), Possible: netpolicy.All()}
			if source.Labels[v1.AppLabel] == names.VirtLauncher {
				p.egress = c.onNetwork(source.Namespace, on, func(of []networkingv1.NetworkPolicy) netpolicy.Result {
					return netpolicy.Egress(of, from, target, c.f.Protocol)
				})
			}
			p.open = c.asked.Intersect(p.ingress.Allowed).Intersect(p.egress.Allowed)
			p.possible = c.asked.Intersect(p.ingress.Possible).Intersect(p.egress.Possible)
			c.paths = append(c.paths, p)
		}
	}
	for i := range c.causes {
		if len(shared) > 0 && c.causes[i].Reason == "NoPodNetwork" {
			c.causes[i].State = c.state()
		}
	}
	for i := range c.paths {
		if p := &c.paths[i]; p.network != "" {
			from := c.f.Source.String()
			c.deniedOn(p, c.Namespace, "NetworkIngressDenied", "the guest's pod", "from "+from, p.ingress)
			c.deniedOn(p, source.Namespace, "NetworkEgressDenied", from, "to the guest's pod", p.egress)
		}
	}
}

// pathsOn returns a path for each family in which both ends are known on a network, or one without addresses.
func (c *connecting) pathsOn(name, on string) []path {
	sources := multipolicy.EndsOf(c.f.Source.Pod.Annotations)[on].Addresses
	var targets []netip.Addr
	if status := c.interfaceStatus(name); status != nil {
		for _, text := range append(slices.Clone(status.IPs), status.IP) {
			if a, err := netip.ParseAddr(text); err == nil && !a.IsLinkLocalUnicast() {
				targets = append(targets, a.Unmap())
			}
		}
	}
	var out []path
	for _, to := range targets {
		from := slices.IndexFunc(sources, func(a netip.Addr) bool { return a.Is4() == to.Is4() })
		known := slices.ContainsFunc(out, func(p path) bool { return p.to.Is4() == to.Is4() })
		if from >= 0 && !known {
			out = append(out, path{network: name, from: sources[from], to: to})
		}
	}
	if len(out) == 0 {
		out = append(out, path{network: name})
	}
	return out
}

// onNetwork asks the policies of a namespace for a network.
func (c *connecting) onNetwork(
	namespace, on string, ask func([]networkingv1.NetworkPolicy) netpolicy.Result,
) netpolicy.Result {
	policies, read := c.f.NetworkPolicies[namespace]
	if !read {
		return netpolicy.Result{Possible: netpolicy.All()}
	}
	var of []networkingv1.NetworkPolicy
	for i := range policies {
		if slices.Contains(policies[i].Networks(), on) {
			of = append(of, policies[i].Enforced())
		}
	}
	return ask(of)
}

// deniedOn adds the policies of one direction that leave ports out on a network.
func (c *connecting) deniedOn(p *path, namespace, reason, selected, relation string, r netpolicy.Result) {
	where := fmt.Sprintf("on network %s", p.network)
	if _, read := c.f.NetworkPolicies[namespace]; !read && !r.Allowed.Contains(c.asked) {
		c.once(Cause{
			Layer: LayerNetwork, Object: multipolicy.Resource, State: c.state(), Reason: "PoliciesUnreadable",
			Message: "you may not read the MultiNetworkPolicies of namespace " + namespace + ", any of which may " +
				"drop them " + where,
			Fixes: []string{c.right(multipolicy.Resource, namespace)},
		})
		return
	}
	possible := r.Possible.Intersect(c.asked)
	if possible.Contains(c.asked) || len(r.Selecting) == 0 {
		return
	}
	words, verb := make([]string, len(r.Selecting)), "select"
	for i, name := range r.Selecting {
		words[i] = "multinetworkpolicy/" + name
	}
	if len(words) == 1 {
		verb = "selects"
	}
	policies := fmt.Sprintf("%s in namespace %s, which %s %s", strings.Join(words, ", "), namespace, verb, selected)
	message := fmt.Sprintf("%s no rule of %s, allows %s %s", where, policies, c.ports(), relation)
	if len(r.Possible) > 0 {
		message = fmt.Sprintf("%s the rules of %s, allow of %s %s these ports alone: %s", where, policies, c.f.Protocol,
			relation, r.Possible)
	}
	c.once(Cause{
		Layer: LayerNetwork, Object: words[0], State: c.state(), Reason: reason, Message: message,
		Fixes: []string{"kubectl describe multi-networkpolicy " + strings.Join(r.Selecting, " ") + " -n " + namespace},
	})
}

// once adds a cause, unless another family has added it.
func (c *connecting) once(cause Cause) {
	if !slices.ContainsFunc(c.causes, func(o Cause) bool { return o.Message == cause.Message }) {
		c.causes = append(c.causes, cause)
	}
}
