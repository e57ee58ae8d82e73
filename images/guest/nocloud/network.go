package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Network is what network-config asks for, versions 1 and 2 alike.
type Network struct {
	Interfaces []Interface
	DNS        []string
	Search     []string
	Ignored    []string
}

// Interface is one network interface.
type Interface struct {
	Name         string // the name it has, a pattern in version 2; empty matches any
	MAC          string // lower case; empty matches any
	Rename       string
	MTU          int // bytes; 0 leaves it
	DHCP4, DHCP6 bool
	Addresses    []netip.Prefix
	Routes       []Route
}

// Route is one route. The zero To is the default route.
type Route struct {
	To     netip.Prefix
	Via    netip.Addr
	Metric int
}

// Device is a network interface that the guest has.
type Device struct{ Name, MAC string }

// ParseNetwork reads network-config.
func ParseNetwork(data []byte) (*Network, error) {
	var outer struct {
		Network yaml.Node `yaml:"network"`
	}
	if err := yaml.Unmarshal(data, &outer); err != nil {
		return nil, err
	}
	var doc yaml.Node
	if outer.Network.IsZero() {
		if err := yaml.Unmarshal(data, &doc); err != nil {
			return nil, err
		}
		if len(doc.Content) == 0 {
			return nil, errors.New("nothing in it")
		}
		doc = *doc.Content[0]
	} else {
		doc = outer.Network
	}
	var head struct {
		Version int       `yaml:"version"`
		Config  yaml.Node `yaml:"config"`
	}
	if err := doc.Decode(&head); err != nil {
		return nil, err
	}
	switch {
	case head.Config.Value == "disabled":
		return &Network{}, nil
	case head.Version == 1:
		return parseV1(doc)
	case head.Version == 2:
		return parseV2(doc)
	}
	return nil, fmt.Errorf("version %d: need version: 1 or version: 2", head.Version)
}

// addGateway adds a default route when a gateway is given.
func (i *Interface) addGateway(gateway string) error {
	if gateway == "" {
		return nil
	}
	via, err := netip.ParseAddr(gateway)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	i.Routes = append(i.Routes, Route{Via: via})
	return nil
}

// addRoute adds a route; an empty via is a network on the link itself.
func (i *Interface) addRoute(to, netmask, via string, metric int) error {
	r := Route{Metric: metric}
	var err error
	if r.To, err = destination(to, netmask); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	if via != "" {
		if r.Via, err = netip.ParseAddr(via); err != nil {
			return fmt.Errorf("route: %w", err)
		}
	}
	i.Routes = append(i.Routes, r)
	return nil
}

// prefix reads 192.0.2.1/24, or an address and a netmask in either notation. Without both, it is the
// address alone.
func prefix(address, netmask string) (netip.Prefix, error) {
	if strings.Contains(address, "/") {
		return netip.ParsePrefix(address)
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}, err
	}
	bits := a.BitLen()
	if netmask != "" {
		ip := net.ParseIP(netmask)
		if ip.To4() == nil {
			return netip.ParsePrefix(address + "/" + netmask)
		}
		ones, size := net.IPMask(ip.To4()).Size()
		if size == 0 {
			return netip.Prefix{}, fmt.Errorf("netmask %s has holes", netmask)
		}
		bits = ones
	}
	return netip.PrefixFrom(a, bits), nil
}

// destination reads where a route goes: default, a network, or an address.
func destination(to, netmask string) (netip.Prefix, error) {
	if to == "" || to == "default" {
		return netip.Prefix{}, nil
	}
	p, err := prefix(to, netmask)
	if err != nil {
		return p, err
	}
	if p.Bits() == 0 {
		return netip.Prefix{}, nil
	}
	return p.Masked(), nil
}

// assign says which interface of the network-config each device is. A device in none of them
// stays down, as with cloud-init. One exception helps those who wrote for another guest: entries that
// only name an interface as systemd would (enp1s0) and have no such device get the devices left, in order.
func (n *Network) assign(devices []Device) map[string]Interface {
	got := map[string]Interface{}
	var foreign []Interface
	for _, i := range n.Interfaces {
		found := false
		for _, d := range devices {
			if _, taken := got[d.Name]; !taken && i.matches(d) {
				got[d.Name] = i
				found = true
				if !strings.ContainsAny(i.Name, "*?[") {
					break
				}
			}
		}
		if !found && i.MAC == "" && strings.HasPrefix(i.Name, "en") {
			foreign = append(foreign, i)
		}
	}
	for _, d := range devices {
		if _, taken := got[d.Name]; !taken && len(foreign) > 0 {
			got[d.Name], foreign = foreign[0], foreign[1:]
		}
	}
	return got
}

func (i *Interface) matches(d Device) bool {
	if i.MAC != "" && i.MAC != strings.ToLower(d.MAC) {
		return false
	}
	if i.Name != "" {
		ok, err := path.Match(i.Name, d.Name)
		return err == nil && ok
	}
	return true
}

// commands are what brings an interface up on a device, in order. DHCP is last, because it may
// take long.
func (i *Interface) commands(device string) [][]string {
	var c [][]string
	add := func(words ...string) { c = append(c, words) }
	if i.Rename != "" && i.Rename != device {
		add("ip", "link", "set", device, "name", i.Rename)
		device = i.Rename
	}
	if i.MTU > 0 {
		add("ip", "link", "set", device, "mtu", fmt.Sprint(i.MTU))
	}
	add("ip", "link", "set", device, "up")
	for _, a := range i.Addresses {
		add("ip", "addr", "add", a.String(), "dev", device)
	}
	for _, r := range i.Routes {
		to := "default"
		if r.To.IsValid() {
			to = r.To.String()
		}
		family := "-4"
		if r.To.Addr().Is6() || r.Via.Is6() {
			family = "-6"
		}
		words := []string{"ip", family, "route", "replace", to}
		if r.Via.IsValid() {
			words = append(words, "via", r.Via.String())
		}
		words = append(words, "dev", device)
		if r.Metric > 0 {
			words = append(words, "metric", fmt.Sprint(r.Metric))
		}
		c = append(c, words)
	}
	if i.DHCP6 { // in the background
		add("/usr/lib/tiny/dhcp", "-6", device)
	}
	if i.DHCP4 {
		add("/usr/lib/tiny/dhcp", device)
	}
	return c
}

// appendNew appends what is not there yet.
func appendNew(to []string, more ...string) []string {
	for _, s := range more {
		if s != "" && !slices.Contains(to, s) {
			to = append(to, s)
		}
	}
	return to
}
