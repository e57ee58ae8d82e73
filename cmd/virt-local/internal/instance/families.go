package instance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// What IPFamily may be.
const (
	// IPv4 and IPv6 have addresses of one family.
	IPv4 = "ipv4"
	IPv6 = "ipv6"
	// Dual has both for nodes, pods and Services; IPv4 is what a Service gets that asks for one.
	Dual = "dual"
)

// Families returns the instance's families, first that of Services which ask for one.
func (in *Instance) Families() []Family {
	switch in.IPFamily {
	case IPv6:
		return []Family{V6}
	case Dual:
		return []Family{V4, V6}
	}
	return []Family{V4}
}

// Has reports whether the instance has addresses of the family.
func (in *Instance) Has(f Family) bool { return slices.Contains(in.Families(), f) }

// perFamily returns what is asked for each family, in the order of Families.
func perFamily[T any](in *Instance, ask func(Family) T) []T {
	var all []T
	for _, f := range in.Families() {
		all = append(all, ask(f))
	}
	return all
}

// HostIPs returns the machine's addresses on the bridge.
func (in *Instance) HostIPs() []netip.Addr { return perFamily(in, in.Slot.HostIP) }

// KubernetesIPs returns the first cluster IP of each family.
func (in *Instance) KubernetesIPs() []netip.Addr { return perFamily(in, in.Slot.KubernetesIP) }

// DNSIPs returns the cluster IPs of the Service kube-dns.
func (in *Instance) DNSIPs() []netip.Addr { return perFamily(in, in.Slot.DNSIP) }

// PodNets returns the networks of all pods.
func (in *Instance) PodNets() []netip.Prefix { return perFamily(in, in.Slot.PodNet) }

// ServiceNets returns the networks of cluster IPs.
func (in *Instance) ServiceNets() []netip.Prefix { return perFamily(in, in.Slot.ServiceNet) }

// IPs returns the node's addresses.
func (n Node) IPs() []netip.Addr {
	return perFamily(n.Instance, func(f Family) netip.Addr { return n.Slot.NodeIP(f, n.Number) })
}

// NodePodNets returns the networks of the node's pods.
func (n Node) NodePodNets() []netip.Prefix {
	return perFamily(n.Instance, func(f Family) netip.Prefix { return n.Slot.NodePodNet(f, n.Number) })
}

// Texts returns addresses or networks as text.
func Texts[T fmt.Stringer](values []T) []string {
	var texts []string
	for _, v := range values {
		texts = append(texts, v.String())
	}
	return texts
}

// List joins addresses or networks with commas, as flags of Kubernetes' programs want them.
func List[T fmt.Stringer](values []T) string { return strings.Join(Texts(values), ",") }
