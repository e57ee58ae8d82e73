package why

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/why/netpolicy"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// Shared returns the guest's interfaces on networks of Multus that a pod is on, too: NAMESPACE/NAME of the network by
// the interface's name.
func (f *Facts) Shared(pod *corev1.Pod) map[string]string {
	spec := f.Spec()
	if spec == nil || pod == nil {
		return nil
	}
	vmi := f.VMI
	if vmi == nil {
		vmi = &v1.VirtualMachineInstance{Spec: *spec}
		vmi.Namespace = f.Namespace
	}
	ends := multipolicy.EndsOf(pod.Annotations)
	shared := onNetworks(vmi, (&explanation{Facts: *f}).launcher())
	maps.DeleteFunc(shared, func(_, on string) bool { _, there := ends[on]; return !there })
	return shared
}

// onNetworks returns the networks that the interfaces of a VMI are on, by their names: those that its pod has asked
// for, where it stays whatever the VMI says by now.
func onNetworks(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) map[string]string {
	on := multipolicy.On(vmi)
	if pod == nil {
		return on
	}
	asked := network.DefinitionsOf(pod.Annotations)
	for _, n := range vmi.Spec.Networks {
		if _, is := on[n.Name]; is && asked[network.LinkOf(n)] != "" {
			on[n.Name] = asked[network.LinkOf(n)]
		}
	}
	return on
}

// SourceGuest returns the name of the VMI whose guest is in the pod that connects; "" when it is another pod.
func (s Source) SourceGuest() string {
	if s.Pod == nil || s.Pod.Labels[v1.AppLabel] != names.VirtLauncher {
		return ""
	}
	return s.Pod.Annotations[v1.DomainAnnotation]
}

// networks adds a path for each network of Multus that both ends are on, and the MultiNetworkPolicies that drop the
// connection there, as virt-controller has written them into the VMIs. Those for what the source sends hold where
// virtkit puts them: in the pods of guests.
func (c *connecting) networks() {
	source := c.f.Source
	shared := c.f.Shared(source.Pod)
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		on := shared[name]
		down := c.isDown(name)
		for _, p := range c.pathsOn(name, on) {
			from, to := end{address: p.from}, end{address: p.to, mac: c.macOf(name)}
			p.ingress, p.egress = netpolicy.Open(), netpolicy.Open()
			if guest := c.f.SourceVMI; guest != nil {
				its := interfaceOn(guest, source.Pod, on)
				from.mac = macOf(guest, its)
				p.egress = c.heldOn(guest, its, on, to, false)
			} else if source.SourceGuest() != "" && !c.f.SourceGone {
				from.hidden = true
				p.egress = netpolicy.Result{Possible: netpolicy.All(), Unread: "you may not read the instance of the " +
					"guest that is in " + source.String() + ", whose MultiNetworkPolicies"}
			}
			p.ingress = c.heldOn(c.VMI, name, on, from, true)
			p.open = c.asked.Intersect(p.ingress.Allowed).Intersect(p.egress.Allowed)
			p.possible = c.asked.Intersect(p.ingress.Possible).Intersect(p.egress.Possible)
			if down {
				p.open, p.possible = nil, nil
			}
			c.paths = append(c.paths, p)
		}
		if down {
			c.pulled(name)
		}
	}
	for i := range c.paths {
		if p := &c.paths[i]; p.network != "" {
			from := source.String()
			c.deniedOn(p, c.Namespace, c.Name, "NetworkIngressDenied", "the guest's pod", "from "+from, p.ingress)
			c.deniedOn(p, source.Pod.Namespace, source.SourceGuest(), "NetworkEgressDenied", from, "to the guest's pod",
				p.egress)
		}
	}
}

// pathsOn returns a path for each family in which both ends are known on a network, or for each of one end, or one
// without addresses.
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
	if len(out) > 0 {
		return out
	}
	for _, a := range slices.Concat(sources, targets) {
		if len(sources) > 0 && len(targets) > 0 { // of different families, and there may be others
			break
		}
		p := path{network: name, to: a}
		if len(sources) > 0 {
			p = path{network: name, from: a}
		}
		known := slices.ContainsFunc(out, func(o path) bool {
			return o.from.Is4() == p.from.Is4() && o.to.Is4() == p.to.Is4()
		})
		if !known {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = append(out, path{network: name})
	}
	return out
}

// interfaceOn returns the name of a guest's interface on a network; "" when it has none there.
func interfaceOn(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, on string) string {
	for _, name := range slices.Sorted(maps.Keys(onNetworks(vmi, pod))) {
		if onNetworks(vmi, pod)[name] == on {
			return name
		}
	}
	return ""
}

// macOf returns the MAC of an interface of a guest, "" when it is not known.
func macOf(vmi *v1.VirtualMachineInstance, name string) string {
	for _, s := range vmi.Status.Interfaces {
		if s.Name == name && s.MAC != "" {
			return s.MAC
		}
	}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if nic.Name == name {
			return nic.MacAddress
		}
	}
	return ""
}

func (c *connecting) macOf(name string) string {
	if c.VMI == nil {
		return ""
	}
	return macOf(c.VMI, name)
}

// end is the other end of a connection that rules are asked about.
type end struct {
	address netip.Addr // invalid where it is not known
	mac     string     // a guest's
	// hidden says that it is a guest whose MAC is not known.
	hidden bool
}

// allowed reports whether a rule is for an end.
func (e *end) allowed(r *multipolicy.Rule) (certain, possible bool) {
	switch {
	case r.Any, e.mac != "" && slices.ContainsFunc(r.MACs, func(m string) bool { return strings.EqualFold(m, e.mac) }):
		return true, true
	case !e.address.IsValid() && len(r.Addresses)+len(r.Blocks) > 0, e.hidden && len(r.MACs) > 0:
		return false, true
	}
	in := slices.Contains(r.Addresses, e.address) ||
		slices.ContainsFunc(r.Blocks, func(b multipolicy.Block) bool {
			return b.CIDR.Contains(e.address) &&
				!slices.ContainsFunc(b.Except, func(p netip.Prefix) bool { return p.Contains(e.address) })
		})
	return in, in
}

// heldOn asks the rules that hold for an interface of a guest on a network, as its VMI has them: what it receives from
// the other end, or sends to it.
func (c *connecting) heldOn(
	vmi *v1.VirtualMachineInstance, name, on string, other end, ingress bool,
) (r netpolicy.Result) {
	unread := func(why string) netpolicy.Result {
		return netpolicy.Result{Possible: netpolicy.All(), Unread: why + ", and so those MultiNetworkPolicies"}
	}
	text, written := vmi.Annotations[network.AnnotationPolicies]
	if !written {
		return unread("virt-controller has not written yet what holds for vmi/" + vmi.Name + " in namespace " +
			vmi.Namespace)
	}
	rules, err := multipolicy.Decode(text)
	if err != nil {
		return unread("what virt-controller has written of vmi/" + vmi.Name + " cannot be read (" + err.Error() + ")")
	}
	here, known := rules.On(name, on)
	if !known {
		return unread("virt-controller has not looked yet what holds for vmi/" + vmi.Name + " in namespace " +
			vmi.Namespace + " on network " + on)
	}
	for i := range here.Policies {
		policy := &here.Policies[i]
		for _, wrong := range policy.Wrong {
			r.Invalid = append(r.Invalid, fmt.Sprintf("multinetworkpolicy/%s in namespace %s: %s", policy.Name,
				vmi.Namespace, wrong))
		}
		of := policy.Egress
		if ingress {
			of = policy.Ingress
		}
		if of == nil {
			continue
		}
		r.Selecting = append(r.Selecting, policy.Name)
		for j := range of.Rules {
			certain, possible := other.allowed(&of.Rules[j])
			ports := c.portsOf(of.Rules[j].Ports)
			if certain {
				r.Allowed = r.Allowed.Union(ports)
			}
			if possible {
				r.Possible = r.Possible.Union(ports)
			}
		}
	}
	if len(r.Selecting) == 0 {
		r.Allowed, r.Possible = netpolicy.All(), netpolicy.All()
	}
	return r
}

// portsOf returns the ports of the protocol that is asked about.
func (c *connecting) portsOf(listed []multipolicy.Port) netpolicy.Ports {
	if len(listed) == 0 {
		return netpolicy.All()
	}
	var out netpolicy.Ports
	for _, p := range listed {
		if p.Protocol == c.f.Protocol {
			out = out.Union(netpolicy.Ports{{First: max(int32(p.First), netpolicy.First), Last: int32(p.Last)}})
		}
	}
	return out
}

// deniedOn adds the policies of one direction that leave ports out on a network: those of the namespace of a guest.
func (c *connecting) deniedOn(p *path, namespace, guest, reason, selected, relation string, r netpolicy.Result) {
	for _, note := range r.Invalid {
		if !slices.Contains(c.notes, note) {
			c.notes = append(c.notes, note)
		}
	}
	where := fmt.Sprintf("on network %s", p.network)
	show := "virtctl firewall show " + guest + " -n " + namespace
	if r.Unread != "" {
		c.once(Unknown, Cause{
			Layer: LayerNetwork, Object: multipolicy.Resource, Reason: "PoliciesUnreadable",
			Message: r.Unread + " may drop them " + where, Fixes: []string{show},
		})
		return
	}
	policies := make([]string, len(r.Selecting))
	for i, name := range r.Selecting {
		policies[i] = "multinetworkpolicy/" + name
	}
	all, verb := strings.Join(policies, ", "), "select"
	if len(policies) == 1 {
		verb = "selects"
	}
	describe := "kubectl describe multi-networkpolicy " + strings.Join(r.Selecting, " ") + " -n " + namespace
	possible := r.Possible.Intersect(c.asked)
	if !r.Allowed.Contains(possible) {
		c.once(Unknown, Cause{
			Layer: LayerNetwork, Object: policies[0], Reason: "PeerNotKnown",
			Message: fmt.Sprintf("%s %s in namespace %s may allow %s %s: that is for addresses, and which one the "+
				"other end has is not known", where, all, namespace, c.ports(), relation),
			Fixes: []string{describe, show},
		})
	}
	if possible.Contains(c.asked) {
		return
	}
	message := fmt.Sprintf("%s no rule of %s in namespace %s, which %s %s, allows %s %s", where, all, namespace, verb,
		selected, c.ports(), relation)
	if len(r.Possible) > 0 {
		message = fmt.Sprintf("%s the rules of %s in namespace %s, which %s %s, allow of %s %s these ports alone: %s",
			where, all, namespace, verb, selected, c.f.Protocol, relation, r.Possible)
	}
	c.once(Broken, Cause{
		Layer: LayerNetwork, Object: policies[0], Reason: reason, Message: message, Fixes: []string{describe, show},
	})
}

// once adds a cause, unless another family has added it, which is that bad at most.
func (c *connecting) once(most State, cause Cause) {
	if !slices.ContainsFunc(c.causes, func(o Cause) bool { return o.Message == cause.Message }) {
		c.limits(most, cause.Layer, cause.Object, cause.Reason, cause.Message, cause.Fixes...)
	}
}
