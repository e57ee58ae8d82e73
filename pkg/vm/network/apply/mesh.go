package apply

import (
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// proxied sends to the guest what a mesh's proxy in the pod passes on. What comes for the pod by TCP is the proxy's,
// which rules of the mesh redirect to it, but for SSH; the proxy takes nothing else. It dials the pod's own address for
// the guest's ports, from f.proxy. In nft's words:
//
//	prerouting:  iifname eth0 tcp dport 22 dnat to GUEST           (none where ports are listed without it)
//	             iifname eth0 meta l4proto != tcp dnat to GUEST    (or the listed ports of UDP)
//	output:      ip daddr GUEST dnat to GUEST                  (as without a proxy)
//	             tcp dport PROXY accept
//	             ip daddr 127.0.0.1|POD tcp|udp [dport P] dnat to GUEST
//	postrouting: ip saddr 127.0.0.1|127.0.0.6 oifname BRIDGE snat to GATEWAY
//
// The proxy's own ports stay the pod's for the pod's processes, too, of which its agent is one, whatever is listed.
func (f family) proxied(add adding, c chains, nic network.Interface, toGuest []expr.Any) {
	for _, p := range network.ProxyPorts {
		add(c.output, protocol(unix.IPPROTO_TCP), port(p), accept)
	}
	near := []netip.Addr{f.loopback}
	for _, a := range nic.PodIPs {
		if a.BitLen() == f.loopback.BitLen() {
			near = append(near, a)
		}
	}
	if len(nic.Ports) == 0 {
		add(c.prerouting, iif(nic.PodLink), protocol(unix.IPPROTO_TCP), port(network.UnproxiedPort), toGuest)
		add(c.prerouting, iif(nic.PodLink), protocols(expr.CmpOpNeq, unix.IPPROTO_TCP), toGuest)
		for _, to := range near {
			add(c.output, address(f.destination, expr.CmpOpEq, to), protocol(unix.IPPROTO_TCP), toGuest)
			add(c.output, address(f.destination, expr.CmpOpEq, to), protocol(unix.IPPROTO_UDP), toGuest)
		}
	}
	for _, p := range nic.Ports {
		if number(p) != unix.IPPROTO_TCP || p.Port == network.UnproxiedPort {
			add(c.prerouting, iif(nic.PodLink), protocol(number(p)), port(p.Port), toGuest)
		}
		for _, to := range near {
			add(c.output, address(f.destination, expr.CmpOpEq, to), protocol(number(p)), port(p.Port), toGuest)
		}
	}
}

// own are the addresses of the pod's loopback link from which its processes reach the guest.
func (f family) own(nic network.Interface) []netip.Addr {
	if nic.Proxied {
		return []netip.Addr{f.loopback, f.proxy}
	}
	return []netip.Addr{f.loopback}
}
