package dhcp

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Config6 holds what one guest NIC gets by DHCPv6. Its router, and the prefix that it reaches without one, are not
// among it: those are told by router advertisements (pkg/vm/network/router).
type Config6 struct {
	// Link is the bridge that the server listens on, Server its identifier, the same in each pod of a guest.
	Link   string
	Server dhcpv6.DUID
	// Client is the guest's address.
	Client netip.Addr
	DNS    []netip.Addr
	// Search are the domains to complete names with; the first is the client's own.
	Search []string
	// Hostname is the client's.
	Hostname string
	// BootFile is the URL of the file to boot; empty where it is not known by one.
	BootFile string
}

// NewConfig6 returns the configuration for the guest NIC of plan. ok is false when the plan has no IPv6 address for it.
func NewConfig6(plan network.Interface) (c Config6, ok bool, err error) {
	if plan.IPv6 == nil {
		return Config6{}, false, nil
	}
	if !plan.IPv6.Guest.Is6() {
		return Config6{}, false, fmt.Errorf("interface %q: %q is not an IPv6 address", plan.Name, plan.IPv6.Guest)
	}
	mac, err := net.ParseMAC(plan.BridgeMAC())
	if err != nil {
		return Config6{}, false, fmt.Errorf("interface %q: %w", plan.Name, err)
	}
	c = Config6{
		Link:   plan.BridgeLink,
		Server: &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac},
		Client: plan.IPv6.Guest, DNS: plan.IPv6.DNS, Hostname: plan.Hostname,
	}
	if plan.DHCP != nil {
		c.BootFile = bootURL(plan.DHCP)
	}
	for _, d := range plan.IPv6.Search {
		if domainName(d) {
			c.Search = append(c.Search, d)
		}
	}
	return c, true, nil
}

// bootURL returns the URL by which DHCPv6 names a boot file (RFC 5970): the file's name if it is one, or what it is
// called on the TFTP server. A server's IPv4 address is of no use to who asks by IPv6.
func bootURL(o *network.DHCPOptions) string {
	if scheme, _, ok := strings.Cut(o.BootFile, "://"); ok && scheme != "" {
		return o.BootFile
	}
	host := o.TFTPServer
	if o.BootFile == "" || host == "" {
		return ""
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Is4() {
			return ""
		}
		host = "[" + host + "]"
	}
	return (&url.URL{Scheme: "tftp", Host: host, Path: "/" + strings.TrimPrefix(o.BootFile, "/")}).String()
}
