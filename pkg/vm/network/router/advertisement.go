// Package router advertises to a guest its IPv6 router: where the default route goes, that its address is DHCPv6's to
// give, the prefix that it reaches without a router, the MTU, name servers and search domains. virt-handler runs it,
// since frames on the guest's tap take rights that the launcher has not.
//
// The advertisement is a pure function of the network plan (Frame); Server puts it on the tap, where the guest alone
// hears it. Of what the guest sends the kernel hands over router solicitations alone, of which nothing is read: each is
// the same question.
package router

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

const (
	// lifetime is that of the route, the prefix and the name servers: the most that an advertisement can say of a route
	// (RFC 8319), so that virt-handler may be away for hours.
	lifetime = 65535 * time.Second
	// forever is a lifetime without an end.
	forever = time.Duration(0xffffffff) * time.Second

	ethernetHeader = 14
	ipHeader       = 40
	hopLimit       = 255 // another one has passed a router, and is not believed
)

var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// Frame returns the Ethernet frame that advertises the router of a guest's NIC; nil when the guest has none to be told
// of, or no IPv6. Its address comes by DHCPv6 alone: a guest that made one itself would not be reached at it.
func Frame(nic network.Interface) ([]byte, error) {
	if nic.IPv6 == nil || nic.BridgeLink == "" {
		return nil, nil
	}
	source, routed := nic.IPv6.Router, lifetime
	if !source.IsValid() {
		source, routed = nic.LinkLocal6(), 0 // to be known by, not to be routed by
	}
	from, err := net.ParseMAC(nic.BridgeMAC())
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w", nic.Name, err)
	}
	message := &ndp.RouterAdvertisement{
		CurrentHopLimit: 64, ManagedConfiguration: true, OtherConfiguration: true, RouterLifetime: routed,
	}
	if source == nic.LinkLocal6() {
		message.Options = append(message.Options, &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: from})
	}
	if nic.MTU >= 1280 { // what IPv6 needs
		message.Options = append(message.Options, ndp.NewMTU(uint32(nic.MTU)))
	}
	if nic.IPv6.Bits < nic.IPv6.Guest.BitLen() {
		message.Options = append(message.Options, &ndp.PrefixInformation{
			PrefixLength: uint8(nic.IPv6.Bits), OnLink: true, Prefix: nic.IPv6.Prefix().Masked().Addr(),
			ValidLifetime: forever, PreferredLifetime: forever,
		})
	}
	if len(nic.IPv6.DNS) > 0 {
		message.Options = append(message.Options,
			&ndp.RecursiveDNSServer{Lifetime: lifetime, Servers: nic.IPv6.DNS})
	}
	if len(nic.IPv6.Search) > 0 {
		message.Options = append(message.Options, &ndp.DNSSearchList{Lifetime: lifetime, DomainNames: nic.IPv6.Search})
	}
	text, err := ndp.MarshalMessageChecksum(message, source, allNodes)
	if err != nil {
		return nil, fmt.Errorf("interface %q: write the router advertisement: %w", nic.Name, err)
	}
	frame := make([]byte, ethernetHeader+ipHeader, ethernetHeader+ipHeader+len(text))
	copy(frame, allNodesMAC)
	copy(frame[6:], from)
	frame[12], frame[13] = unix.ETH_P_IPV6>>8, unix.ETH_P_IPV6&0xff
	ip := frame[ethernetHeader:]
	ip[0], ip[4], ip[5], ip[6], ip[7] = 6<<4, byte(len(text)>>8), byte(len(text)), unix.IPPROTO_ICMPV6, hopLimit
	copy(ip[8:], source.AsSlice())
	copy(ip[24:], allNodes.AsSlice())
	return append(frame, text...), nil
}
