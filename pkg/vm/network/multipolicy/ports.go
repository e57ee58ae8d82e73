package multipolicy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portsOf returns the ports that a rule lists; named are those of the one who is connected to. A name that nobody has
// stands for no port.
func (c *compiling) portsOf(
	where string, listed []networkingv1.NetworkPolicyPort, named []corev1.ContainerPort,
) []Port {
	var out []Port
	for i := range listed {
		ports, err := portOf(&listed[i], named)
		if err != nil {
			c.note(where, fmt.Errorf("ports[%d]: %w", i, err))
		}
		out = append(out, ports...)
	}
	slices.SortFunc(out, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	return slices.Compact(out)
}

func portOf(p *networkingv1.NetworkPolicyPort, named []corev1.ContainerPort) ([]Port, error) {
	protocol := corev1.ProtocolTCP
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	if !slices.Contains(protocols, protocol) {
		return nil, fmt.Errorf("protocol %q is not TCP, UDP or SCTP", protocol)
	}
	switch {
	case p.Port == nil && p.EndPort != nil:
		return nil, fmt.Errorf("endPort %d has no port before it", *p.EndPort)
	case p.Port == nil:
		return []Port{{protocol, 0, math.MaxUint16}}, nil
	case p.Port.Type == intstr.String && p.EndPort != nil:
		return nil, fmt.Errorf("endPort %d comes after a port with a name", *p.EndPort)
	case p.Port.Type == intstr.String:
		return namedPorts(named, p.Port.StrVal, protocol), nil
	}
	first, last := p.Port.IntVal, p.Port.IntVal
	if p.EndPort != nil {
		last = *p.EndPort
	}
	if first < 0 || last > math.MaxUint16 || first > last {
		return nil, fmt.Errorf("%d to %d are no ports", first, last)
	}
	return []Port{{protocol, uint16(first), uint16(last)}}, nil
}

func namedPorts(of []corev1.ContainerPort, name string, protocol corev1.Protocol) []Port {
	var out []Port
	for _, p := range of {
		if p.Name == name && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol &&
			p.ContainerPort > 0 && p.ContainerPort <= math.MaxUint16 {
			out = append(out, Port{protocol, uint16(p.ContainerPort), uint16(p.ContainerPort)})
		}
	}
	return out
}

// hasNames reports whether a rule lists ports by name, which each peer may have others of.
func hasNames(listed []networkingv1.NetworkPolicyPort) bool {
	return slices.ContainsFunc(listed,
		func(p networkingv1.NetworkPolicyPort) bool { return p.Port != nil && p.Port.Type == intstr.String })
}
