package dhcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// forever is the lease: the address is the guest's as long as the pod lives.
const forever = time.Duration(0xffffffff) * time.Second

// Reply answers a request; nil means silence: another client, another server's business, or a message
// that wants no answer.
func (c Config) Reply(req *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	if req.OpCode != dhcpv4.OpcodeBootRequest || !bytes.Equal(req.ClientHWAddr, c.MAC) {
		return nil, nil
	}
	if id := req.ServerIdentifier(); id != nil && !id.Equal(c.Server.AsSlice()) {
		return nil, nil
	}
	var kind dhcpv4.MessageType
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeRequest:
		kind = dhcpv4.MessageTypeAck
		wanted := req.RequestedIPAddress()
		if wanted == nil {
			wanted = req.ClientIPAddr
		}
		if !wanted.Equal(c.Client.Addr().AsSlice()) {
			return c.refuse(req)
		}
	case dhcpv4.MessageTypeInform:
		kind = dhcpv4.MessageTypeAck
	default:
		return nil, nil
	}
	modifiers := []dhcpv4.Modifier{dhcpv4.WithReply(req), dhcpv4.WithMessageType(kind)}
	if req.MessageType() != dhcpv4.MessageTypeInform {
		modifiers = append(modifiers,
			dhcpv4.WithYourIP(c.Client.Addr().AsSlice()),
			dhcpv4.WithOption(dhcpv4.OptIPAddressLeaseTime(forever)))
	}
	for _, o := range c.options() {
		modifiers = append(modifiers, dhcpv4.WithOption(o))
	}
	return c.build(req, modifiers)
}

func (c Config) refuse(req *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	return c.build(req, []dhcpv4.Modifier{
		dhcpv4.WithReply(req),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeNak),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(c.Server.AsSlice())),
	})
}

func (c Config) build(req *dhcpv4.DHCPv4, modifiers []dhcpv4.Modifier) (*dhcpv4.DHCPv4, error) {
	// Clients distinguish two of a kind by their identifier, and want it back (RFC 6842).
	modifiers = append(modifiers, dhcpv4.WithOptionCopied(req, dhcpv4.OptionClientIdentifier))
	reply, err := dhcpv4.New(modifiers...)
	if err != nil {
		return nil, fmt.Errorf("make a DHCP reply: %w", err)
	}
	return reply, nil
}

// options returns the options that every client gets.
func (c Config) options() []dhcpv4.Option {
	out := []dhcpv4.Option{
		dhcpv4.OptServerIdentifier(c.Server.AsSlice()),
		dhcpv4.OptSubnetMask(net.CIDRMask(c.Client.Bits(), 32)),
	}
	if c.Router.IsValid() {
		out = append(out, dhcpv4.OptRouter(c.Router.AsSlice()))
	}
	if len(c.Routes) > 0 {
		out = append(out, dhcpv4.OptClasslessStaticRoute(c.classless()...))
	}
	if len(c.DNS) > 0 {
		var servers []net.IP
		for _, a := range c.DNS {
			servers = append(servers, a.AsSlice())
		}
		out = append(out, dhcpv4.OptDNS(servers...))
	}
	if len(c.Search) > 0 {
		out = append(out,
			dhcpv4.OptDomainName(c.Search[0]),
			dhcpv4.OptDomainSearch(&rfc1035label.Labels{Labels: c.Search}))
	}
	if c.Hostname != "" {
		out = append(out, dhcpv4.OptHostName(c.Hostname))
	}
	if c.MTU > 0 && c.MTU <= 0xffff {
		out = append(out,
			dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, binary.BigEndian.AppendUint16(nil, uint16(c.MTU))))
	}
	return append(out, c.more()...)
}

// more returns the options of the VMI's own.
func (c Config) more() []dhcpv4.Option {
	var out []dhcpv4.Option
	if name := c.More.TFTPServer; name != "" {
		out = append(out, dhcpv4.OptTFTPServerName(name))
	}
	if name := c.More.BootFile; name != "" {
		out = append(out, dhcpv4.OptBootFileName(name))
	}
	if len(c.More.NTP) > 0 {
		var servers []net.IP
		for _, a := range c.More.NTP {
			servers = append(servers, a.AsSlice())
		}
		out = append(out, dhcpv4.OptNTPServers(servers...))
	}
	for _, o := range c.More.Private {
		out = append(out, dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(o.Code), []byte(o.Value)))
	}
	return out
}

// classless returns the routes of option 121. A client that reads it ignores the router option, so the default route is
// among them, after what it may need to reach the router.
func (c Config) classless() []*dhcpv4.Route {
	var out []*dhcpv4.Route
	for _, r := range c.Routes {
		if !r.Destination.Addr().Is4() || !r.Via.Is4() {
			continue
		}
		out = append(out, route(r.Destination, r.Via))
	}
	if c.Router.IsValid() {
		out = append(out, route(netip.PrefixFrom(netip.IPv4Unspecified(), 0), c.Router))
	}
	return out
}

func route(to netip.Prefix, via netip.Addr) *dhcpv4.Route {
	to = to.Masked()
	return &dhcpv4.Route{
		Dest:   &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), 32)},
		Router: via.AsSlice(),
	}
}
