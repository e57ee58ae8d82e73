// Package dhcp gives a guest its address: one server a NIC, on the bridge that virt-handler made in the
// pod, answering one MAC with one address for ever. What it answers is a pure function of the network
// plan and the pod's resolv.conf (Config.Reply); Server puts that on a socket.
//
// Messages are read and written by github.com/insomniacslk/dhcp. Its server4.Server is not used: it starts a goroutine
// for each packet, of which a guest may send any number, logs each, and ends when a read fails, as it does when a link
// goes down for a moment.
package dhcp

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Config holds what one guest NIC gets by DHCP.
type Config struct {
	// Link is the bridge that the server listens on.
	Link string
	// MAC is the only client answered.
	MAC net.HardwareAddr
	// Client is the client's address with the subnet's prefix, Server the server's identifier.
	Client netip.Prefix
	Server netip.Addr
	Router netip.Addr
	// Routes besides the default route. A Via of 0.0.0.0 is on the link.
	Routes []network.Route
	DNS    []netip.Addr
	// Search are the domains to complete names with; the first is the client's own.
	Search []string
	// Hostname is the client's.
	Hostname string
	// MTU in bytes; 0 leaves it to the client.
	MTU int
	// More holds the VMI's own options.
	More network.DHCPOptions
}

// NewConfig returns the configuration for the guest NIC of plan. ok is false when there is nothing to give, because the
// plan has no IPv4 address for it.
func NewConfig(plan network.Interface, resolv Resolv) (c Config, ok bool, err error) {
	if !plan.Guest.Is4() {
		return Config{}, false, nil
	}
	mac, err := net.ParseMAC(plan.MAC)
	if err != nil {
		return Config{}, false, fmt.Errorf("interface %q: %w", plan.Name, err)
	}
	c = Config{
		Link:     plan.BridgeLink,
		MAC:      mac,
		Client:   plan.Prefix(),
		Server:   plan.Gateway.Addr(),
		Router:   plan.Gateway.Addr(),
		Routes:   plan.Routes,
		Search:   plan.Search,
		Hostname: plan.Hostname,
		MTU:      plan.MTU,
	}
	if plan.DHCP != nil {
		c.More = *plan.DHCP
	}
	if plan.Binding == network.Bridge {
		// The gateway is another host; the server is the bridge.
		c.Server = network.BridgeAddress.Addr()
	}
	if len(c.Search) == 0 {
		c.Search = resolv.Search
	}
	for _, a := range resolv.Nameservers {
		if a.Is4() && !a.IsLoopback() && !a.IsUnspecified() {
			c.DNS = append(c.DNS, a)
		}
	}
	return c, true, nil
}
