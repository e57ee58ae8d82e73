package network

import (
	"net/netip"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// guests returns a link as a guest is to have it that comes with addresses of its network: they take the place of those
// that the pod was given here, so that DHCP goes on to offer them. An address of which neither the pod's address nor
// the wish says how long its network's prefix is stays the guest's, without DHCP's help.
func (l Link) guests(vmi *v1.VirtualMachineInstance, n *v1.Network) Link {
	if n.Multus == nil || n.Multus.Default {
		return l
	}
	given := map[int]bool{}
	for _, a := range ipaddress.OfInterface(vmi, n.Name, macaddress.Network(vmi.Namespace, n)) {
		i := l.placeOf(a.Addr, given)
		var own netip.Prefix
		switch {
		case i >= 0 && l.Addresses[i].Masked().Contains(a.Addr):
			own = netip.PrefixFrom(a.Addr, l.Addresses[i].Bits())
		case a.Bits >= 0:
			own = a.Prefix()
		default:
			continue
		}
		l.Addresses = slices.Clone(l.Addresses)
		if i < 0 {
			i, l.Addresses = len(l.Addresses), append(l.Addresses, own)
		}
		l.Addresses[i], given[i] = own, true
	}
	l.Addresses = slices.DeleteFunc(slices.Clone(l.Addresses), ipaddress.Stands)
	return l
}

// placeOf returns the index of the link's address whose place one of the guest's takes, which is not among those that
// are given: of the same subnet, or else of the same family; -1 for none.
func (l Link) placeOf(a netip.Addr, given map[int]bool) int {
	out := -1
	for i, p := range l.Addresses {
		switch {
		case p.Addr().Is4() != a.Is4() || !p.Addr().IsGlobalUnicast() || given[i]:
		case p.Masked().Contains(a):
			return i
		case out < 0:
			out = i
		}
	}
	return out
}

// podIPs returns the addresses that the pod was given on a link. Those that only stand in for the addresses of a guest
// that comes are nobody's.
func (l Link) podIPs(incoming bool) []netip.Addr {
	var out []netip.Addr
	for _, p := range l.Addresses {
		if !incoming || !ipaddress.Stands(p) {
			out = append(out, p.Addr())
		}
	}
	return out
}

// Offered returns the addresses that the guest has by DHCP on its link, and the others of the link.
func (i Interface) Offered() []netip.Addr {
	if i.Binding != Bridge {
		return i.PodIPs
	}
	out := slices.Clone(i.PodIPs)
	offered := []netip.Addr{i.Guest}
	if i.IPv6 != nil {
		offered = append(offered, i.IPv6.Guest)
	}
	for _, a := range offered {
		if !a.IsValid() || slices.Contains(out, a) {
			continue
		}
		at := slices.IndexFunc(out, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
		if at < 0 {
			out = append(out, a)
			continue
		}
		out[at] = a
	}
	return out
}

// Announced returns the addresses that a guest which has come by a migration has for certain: those that it began with
// on a bridge, as the node says that it comes from, and that DHCP offers it here, too. Others may be its pod's alone,
// or by now those of somebody else, to whom they were given.
func (i Interface) Announced() []netip.Addr {
	if i.Binding != Bridge || i.Guard == nil {
		return nil
	}
	var out []netip.Addr
	offered := []netip.Addr{i.Guest}
	if i.IPv6 != nil {
		offered = append(offered, i.IPv6.Guest)
	}
	for _, a := range offered {
		first := slices.IndexFunc(i.Guard.Addresses, func(b netip.Addr) bool { return b.Is4() == a.Is4() })
		if a.IsValid() && first >= 0 && i.Guard.Addresses[first] == a {
			out = append(out, a)
		}
	}
	return out
}
