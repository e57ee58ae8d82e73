package multipolicy

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Rules are what holds for a guest, by the name of the interface. One that is there without policies was looked at, and
// none holds.
type Rules map[string]Interface

// Interface is what holds on one interface.
type Interface struct {
	// Network is NAMESPACE/NAME of the interface's NetworkAttachmentDefinition.
	Network string `json:"network"`
	// Policies are those that select the guest's pod, by name. A direction for which one of them has rules is closed
	// but for what any of these rules allows.
	Policies []Policy `json:"policies,omitempty"`
	// Others say the same of other networks that pods of the guest are on, without Others: a pod stays on its network,
	// whatever its VMI says.
	Others []Interface `json:"others,omitempty"`
}

// On returns what holds for an interface on a network; false where nobody has looked.
func (r Rules) On(name, on string) (Interface, bool) {
	of, ok := r[name]
	if !ok {
		return Interface{}, false
	}
	others := of.Others
	of.Others = nil
	for _, here := range append([]Interface{of}, others...) {
		if here.Network == on {
			return here, true
		}
	}
	return Interface{}, false
}

// Networks returns the networks to look at for a VMI's interfaces, by their names: that which it names, and those that
// its pods asked for, which they stay on. asked are annotations of the pods.
func Networks(vmi *v1.VirtualMachineInstance, asked ...map[string]string) map[string][]string {
	on := On(vmi)
	out := make(map[string][]string, len(on))
	for _, n := range vmi.Spec.Networks {
		of, is := on[n.Name]
		if !is {
			continue
		}
		networks := []string{of}
		for _, annotations := range asked {
			there := network.DefinitionsOf(annotations)[network.LinkOf(n)]
			if there != "" && !slices.Contains(networks, there) {
				networks = append(networks, there)
			}
		}
		out[n.Name] = networks
	}
	return out
}

// Unknown returns what holds for an interface on a network at which nobody has looked: nothing passes.
func Unknown(on string) Interface {
	return Interface{Network: on, Policies: []Policy{{
		Name: "(not known)", Ingress: &Direction{}, Egress: &Direction{},
		Wrong: []string{"which policies hold on network " + on + " is not known; restart the guest"},
	}}}
}

// Policy is one policy that holds.
type Policy struct {
	// Name is the policy's, which is in the VMI's namespace.
	Name string `json:"name"`
	// Ingress is what the guest may receive, Egress what it may send; nil where the policy is not for the direction.
	Ingress *Direction `json:"ingress,omitempty"`
	Egress  *Direction `json:"egress,omitempty"`
	// Wrong says what in the policy has no meaning, and allows nothing.
	Wrong []string `json:"wrong,omitempty"`
}

// Direction has the rules of a policy for one direction; none allow nothing.
type Direction struct {
	Rules []Rule `json:"rules,omitempty"`
}

// Rule allows connections with some peers at some ports.
type Rule struct {
	// Any means every peer; else those with one of Addresses or MACs, or in one of Blocks.
	Any       bool         `json:"any,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// MACs are those of guests, whose frames carry no others (package network's guards).
	MACs   []string `json:"macs,omitempty"`
	Blocks []Block  `json:"blocks,omitempty"`
	// Ports are those of the one who is connected to; none are all, of every protocol.
	Ports []Port `json:"ports,omitempty"`
}

// Block is a range of addresses without some of it.
type Block struct {
	CIDR   netip.Prefix   `json:"cidr"`
	Except []netip.Prefix `json:"except,omitempty"`
}

// Port is a range of ports.
type Port struct {
	// Protocol is TCP, UDP or SCTP.
	Protocol corev1.Protocol `json:"protocol"`
	First    uint16          `json:"first"`
	Last     uint16          `json:"last"`
}

// Encode returns the text of the rules. Where they are too many, the policies that hold allow nothing, and say so: what
// is not written cannot hold.
func Encode(rules Rules) string {
	text, err := json.Marshal(rules)
	if err != nil {
		panic(err) // plain values only
	}
	if len(text) <= network.MaxPolicies {
		return string(text)
	}
	closed := make(Rules, len(rules))
	wrong := []string{fmt.Sprintf("it and the others that hold for the guest have peers of %d bytes, and %d are the "+
		"most; use ipBlock instead of selectors that match many pods", len(text), network.MaxPolicies)}
	for name, nic := range rules {
		closed[name] = nic.closed(wrong)
	}
	if text, err = json.Marshal(closed); err != nil {
		panic(err)
	}
	if len(text) <= network.MaxPolicies {
		return string(text)
	}
	for name, nic := range closed { // so many policies that their names are too long
		closed[name] = nic.shut(wrong)
	}
	if text, err = json.Marshal(closed); err != nil {
		panic(err)
	}
	return string(text)
}

// shut returns what closes the directions that policies close, by one of them in place of all.
func (i Interface) shut(wrong []string) Interface {
	ingress, egress := i.Closed()
	if len(i.Policies) > 0 {
		one := Policy{Name: i.Policies[0].Name, Wrong: wrong}
		if ingress {
			one.Ingress = &Direction{}
		}
		if egress {
			one.Egress = &Direction{}
		}
		i.Policies = []Policy{one}
	}
	i.Others = slices.Clone(i.Others)
	for at := range i.Others {
		i.Others[at] = i.Others[at].shut(wrong)
	}
	return i
}

// closed returns what holds without what it allows.
func (i Interface) closed(wrong []string) Interface {
	i.Policies, i.Others = slices.Clone(i.Policies), slices.Clone(i.Others)
	for at := range i.Policies {
		p := &i.Policies[at]
		p.Wrong = wrong
		if p.Ingress != nil {
			p.Ingress = &Direction{}
		}
		if p.Egress != nil {
			p.Egress = &Direction{}
		}
	}
	for at := range i.Others {
		i.Others[at] = i.Others[at].closed(wrong)
	}
	return i
}

// Decode reads the text of rules, and refuses what cannot be made rules of nftables.
func Decode(text string) (Rules, error) {
	var rules Rules
	if err := json.Unmarshal([]byte(text), &rules); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", network.AnnotationPolicies, err)
	}
	for name, nic := range rules {
		for _, of := range append([]Interface{nic}, nic.Others...) {
			if err := of.check(); err != nil {
				return nil, fmt.Errorf("annotation %s: interface %q, %w", network.AnnotationPolicies, name, err)
			}
		}
	}
	return rules, nil
}

func (i Interface) check() error {
	for _, p := range i.Policies {
		if err := p.check(); err != nil {
			return fmt.Errorf("policy %s: %w", p.Name, err)
		}
	}
	for _, of := range i.Others {
		if len(of.Others) > 0 {
			return fmt.Errorf("network %s has others itself", of.Network)
		}
	}
	return nil
}

func (p *Policy) check() error {
	for _, d := range []*Direction{p.Ingress, p.Egress} {
		if d == nil {
			continue
		}
		for i := range d.Rules {
			if err := d.Rules[i].check(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Rule) check() error {
	for _, a := range r.Addresses {
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
			return fmt.Errorf("%s is not a plain address", a)
		}
	}
	for _, text := range r.MACs {
		if mac, err := net.ParseMAC(text); err != nil || len(mac) != 6 {
			return fmt.Errorf("%q is not an Ethernet address", text)
		}
	}
	for _, b := range r.Blocks {
		for _, p := range append([]netip.Prefix{b.CIDR}, b.Except...) {
			if !p.IsValid() || p.Addr().Is4In6() || p.Addr().Is4() != b.CIDR.Addr().Is4() {
				return fmt.Errorf("%s is not a range of addresses of %s", p, b.CIDR)
			}
		}
	}
	for _, p := range r.Ports {
		if p.First > p.Last || !slices.Contains(protocols, p.Protocol) {
			return fmt.Errorf("%s %d-%d are no ports", p.Protocol, p.First, p.Last)
		}
	}
	return nil
}

// protocols are those that have ports.
var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// Closed reports which directions policies of the interface are for: what no rule allows is dropped there.
func (i Interface) Closed() (ingress, egress bool) {
	for _, p := range i.Policies {
		ingress, egress = ingress || p.Ingress != nil, egress || p.Egress != nil
	}
	return ingress, egress
}
