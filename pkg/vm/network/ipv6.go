package network

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// behind6 gives the guest its IPv6 address behind the pod's.
func (nic *Interface) behind6(nw *v1.PodNetwork) error {
	cidr := nw.VMIPv6NetworkCIDR
	if cidr == "" {
		cidr = defaultCIDR6
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || !prefix.Addr().Is6() || prefix.Addr().Is4In6() || prefix.Bits() > 126 {
		return fmt.Errorf("vmIPv6NetworkCIDR %q is not an IPv6 network of /126 or larger, such as %s", cidr,
			defaultCIDR6)
	}
	gateway := prefix.Masked().Addr().Next()
	nic.IPv6 = &IPv6{Guest: gateway.Next(), Bits: prefix.Bits(), Gateway: gateway, Router: nic.LinkLocal6()}
	return nil
}

// takeOver6 gives the guest the IPv6 configuration that the pod's link has. Where the pod does not reach its prefix on
// the link, nor does the guest: all goes through the router.
func (nic *Interface) takeOver6(address netip.Prefix, link Link) {
	nic.IPv6 = &IPv6{Guest: address.Addr(), Bits: address.Addr().BitLen()}
	for _, r := range link.Routes {
		switch {
		case !r.Destination.Addr().Is6():
		case r.Destination == address.Masked() && !r.Via.IsValid():
			nic.IPv6.Bits = address.Bits()
		case r.Destination.Bits() == 0 && r.Via.IsLinkLocalUnicast():
			nic.IPv6.Router = r.Via
		case r.Destination.Bits() == 0 && r.Via.IsValid():
			nic.IPv6.Gateway = r.Via
		}
	}
}

// resolve gives the guest the pod's way to resolve names by IPv6.
func (nic *Interface) resolve(pod Pod) {
	for _, a := range pod.Nameservers {
		if a.Is6() && a.IsGlobalUnicast() { // a link-local one is on the pod's link
			nic.IPv6.DNS = append(nic.IPv6.DNS, a)
		}
	}
	nic.IPv6.Search = nic.Search
	if len(nic.IPv6.Search) == 0 {
		nic.IPv6.Search = pod.Search
	}
}

// ipv6 returns the link's first address that others reach.
func (l Link) ipv6() (netip.Prefix, bool) {
	i := slices.IndexFunc(l.Addresses,
		func(p netip.Prefix) bool { return p.Addr().Is6() && p.Addr().IsGlobalUnicast() })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return l.Addresses[i], true
}
