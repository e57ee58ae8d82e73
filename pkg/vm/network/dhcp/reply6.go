package dhcp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

const (
	// maxAssociations bounds the identity associations of a request that are answered. A client has one, or two.
	maxAssociations = 8
	// noUpdates says that the server does not write the client's name into DNS (RFC 4704, bit N).
	noUpdates = 4
)

// Reply answers a message; nil means silence: another server's business, or a message that RFC 9915 wants dropped.
func (c Config6) Reply(req *dhcpv6.Message) (*dhcpv6.Message, error) {
	if !c.addressed(req) {
		return nil, nil
	}
	reply, err := dhcpv6.NewMessage()
	if err != nil {
		return nil, fmt.Errorf("make a DHCPv6 reply: %w", err)
	}
	reply.MessageType, reply.TransactionID = dhcpv6.MessageTypeReply, req.TransactionID
	reply.AddOption(dhcpv6.OptServerID(c.Server))
	if id := req.Options.ClientID(); id != nil {
		reply.AddOption(dhcpv6.OptClientID(id))
	}
	switch req.MessageType {
	case dhcpv6.MessageTypeSolicit:
		if req.GetOneOption(dhcpv6.OptionRapidCommit) != nil {
			dhcpv6.WithRapidCommit(reply)
		} else {
			reply.MessageType = dhcpv6.MessageTypeAdvertise
		}
		c.associate(req, reply)
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		c.associate(req, reply)
	case dhcpv6.MessageTypeConfirm:
		addresses := wanted(req)
		if len(addresses) == 0 {
			return nil, nil
		}
		code := iana.StatusSuccess
		if slices.ContainsFunc(addresses, func(a net.IP) bool { return !a.Equal(c.Client.AsSlice()) }) {
			code = iana.StatusNotOnLink
		}
		reply.AddOption(&dhcpv6.OptStatusCode{StatusCode: code})
		return reply, nil
	case dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		reply.AddOption(&dhcpv6.OptStatusCode{StatusCode: iana.StatusSuccess})
		return reply, nil
	}
	c.inform(req, reply)
	return reply, nil
}

// addressed reports whether a message is one that this server answers (RFC 9915, section 16).
func (c Config6) addressed(req *dhcpv6.Message) bool {
	client, server := req.Options.ClientID(), req.Options.ServerID()
	switch req.MessageType {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		return client != nil && server == nil
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		return client != nil && server != nil && c.Server.Equal(server)
	case dhcpv6.MessageTypeInformationRequest:
		return (server == nil || c.Server.Equal(server)) && len(req.Options.IANA()) == 0 &&
			len(req.Options.IATA()) == 0 && len(req.Options.IAPD()) == 0
	}
	return false
}

// associate gives the client its address for its first association, and nothing for all others.
func (c Config6) associate(req, reply *dhcpv6.Message) {
	given := 0
	none := func(code iana.StatusCode) dhcpv6.Options {
		return dhcpv6.Options{&dhcpv6.OptStatusCode{StatusCode: code}}
	}
	for _, o := range req.Options.Options {
		if given == maxAssociations {
			return
		}
		switch ia := o.(type) {
		case *dhcpv6.OptIANA:
			out := &dhcpv6.OptIANA{IaId: ia.IaId}
			if given == 0 {
				out.T1, out.T2 = forever, forever
				out.Options.Add(&dhcpv6.OptIAAddress{
					IPv6Addr: c.Client.AsSlice(), PreferredLifetime: forever, ValidLifetime: forever,
				})
				// What the client has from elsewhere, and wants to keep, is over.
				for _, a := range ia.Options.Addresses() {
					if len(out.Options.Options) < maxAssociations && !a.IPv6Addr.Equal(c.Client.AsSlice()) {
						out.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.IPv6Addr})
					}
				}
			} else {
				out.Options.Options = none(iana.StatusNoAddrsAvail)
			}
			reply.AddOption(out)
		case *dhcpv6.OptIATA:
			out := &dhcpv6.OptIATA{IaId: ia.IaId}
			out.Options.Options = none(iana.StatusNoAddrsAvail)
			reply.AddOption(out)
		case *dhcpv6.OptIAPD:
			out := &dhcpv6.OptIAPD{IaId: ia.IaId}
			out.Options.Options = none(iana.StatusNoPrefixAvail)
			reply.AddOption(out)
		default:
			continue
		}
		given++
	}
}

// inform adds the options that every client gets, and its name and boot file if it asks.
func (c Config6) inform(req, reply *dhcpv6.Message) {
	if c.BootFile != "" && req.IsOptionRequested(dhcpv6.OptionBootfileURL) {
		reply.AddOption(dhcpv6.OptBootFileURL(c.BootFile))
	}
	if len(c.DNS) > 0 {
		var servers []net.IP
		for _, a := range c.DNS {
			servers = append(servers, a.AsSlice())
		}
		dhcpv6.WithDNS(servers...)(reply)
	}
	if len(c.Search) > 0 {
		dhcpv6.WithDomainSearchList(c.Search...)(reply)
	}
	if c.Hostname != "" && (req.Options.FQDN() != nil || req.IsOptionRequested(dhcpv6.OptionFQDN)) {
		name := c.Hostname
		if len(c.Search) > 0 {
			name += "." + c.Search[0]
		}
		if domainName(name) {
			dhcpv6.WithFQDN(noUpdates, name)(reply)
		}
	}
}

// wanted returns the addresses of a message's associations.
func wanted(req *dhcpv6.Message) []net.IP {
	var out []net.IP
	for _, ia := range req.Options.IANA() {
		for _, a := range ia.Options.Addresses() {
			out = append(out, a.IPv6Addr)
		}
	}
	for _, ia := range req.Options.IATA() {
		for _, a := range ia.Options.Addresses() {
			out = append(out, a.IPv6Addr)
		}
	}
	return out
}

// answers reports whether a client at an address is answered: one on the link, or the guest at the address that it has.
func (c Config6) answers(from netip.Addr) bool {
	return from.IsLinkLocalUnicast() || from.WithZone("") == c.Client
}
