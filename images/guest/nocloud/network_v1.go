package main

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// v1Entry is one entry of `config:` in version 1:
// https://cloudinit.readthedocs.io/en/latest/reference/network-config-format-v1.html
type v1Entry struct {
	Type    string     `yaml:"type"`
	Name    string     `yaml:"name"`
	MAC     string     `yaml:"mac_address"`
	MTU     int        `yaml:"mtu"`
	Subnets []v1Subnet `yaml:"subnets"`
	// of type nameserver
	Address list `yaml:"address"`
	Search  list `yaml:"search"`
	// of type route
	Destination string `yaml:"destination"`
	Netmask     string `yaml:"netmask"`
	Gateway     string `yaml:"gateway"`
	Metric      int    `yaml:"metric"`
}

type v1Subnet struct {
	Type    string `yaml:"type"`
	Address string `yaml:"address"`
	Netmask string `yaml:"netmask"`
	Gateway string `yaml:"gateway"`
	DNS     list   `yaml:"dns_nameservers"`
	Search  list   `yaml:"dns_search"`
	Routes  []struct {
		Network     string `yaml:"network"`
		Destination string `yaml:"destination"`
		Netmask     string `yaml:"netmask"`
		Gateway     string `yaml:"gateway"`
		Metric      int    `yaml:"metric"`
	} `yaml:"routes"`
}

func parseV1(doc yaml.Node) (*Network, error) {
	var in struct {
		Config []v1Entry `yaml:"config"`
	}
	if err := doc.Decode(&in); err != nil {
		return nil, err
	}
	n := &Network{}
	for k, e := range in.Config {
		var err error
		switch e.Type {
		case "physical":
			err = n.physical(e)
		case "nameserver":
			n.DNS = appendNew(n.DNS, e.Address...)
			n.Search = appendNew(n.Search, e.Search...)
		case "route":
			err = n.route(e)
		default:
			n.Ignored = append(n.Ignored,
				fmt.Sprintf("config[%d]: type %q is not supported by the tiny guest", k, e.Type))
		}
		if err != nil {
			return nil, fmt.Errorf("config[%d] (%s): %w", k, e.Name, err)
		}
	}
	return n, nil
}

// physical reads an interface. One with a MAC is found by it and given the name.
func (n *Network) physical(e v1Entry) error {
	i := Interface{Name: e.Name, MAC: strings.ToLower(e.MAC), MTU: e.MTU}
	if i.MAC != "" {
		i.Name, i.Rename = "", e.Name
	}
	for _, s := range e.Subnets {
		n.DNS = appendNew(n.DNS, s.DNS...)
		n.Search = appendNew(n.Search, s.Search...)
		switch s.Type {
		case "dhcp", "dhcp4":
			i.DHCP4 = true
			continue
		case "dhcp6", "ipv6_dhcpv6-stateful":
			i.DHCP6 = true
			continue
		case "static", "static6":
		default: // manual, and SLAAC, which the kernel does by itself
			continue
		}
		p, err := prefix(s.Address, s.Netmask)
		if err != nil {
			return fmt.Errorf("address: %w", err)
		}
		i.Addresses = append(i.Addresses, p)
		if err := i.addGateway(s.Gateway); err != nil {
			return err
		}
		for _, r := range s.Routes {
			to := r.Destination
			if to == "" {
				to = r.Network
			}
			if err := i.addRoute(to, r.Netmask, r.Gateway, r.Metric); err != nil {
				return err
			}
		}
	}
	n.Interfaces = append(n.Interfaces, i)
	return nil
}

// route adds a route of its own to the interface whose network its gateway is in.
func (n *Network) route(e v1Entry) error {
	var r Interface
	if err := r.addRoute(e.Destination, e.Netmask, e.Gateway, e.Metric); err != nil {
		return err
	}
	for k, i := range n.Interfaces {
		for _, a := range i.Addresses {
			if a.Contains(r.Routes[0].Via) {
				n.Interfaces[k].Routes = append(n.Interfaces[k].Routes, r.Routes[0])
				return nil
			}
		}
	}
	return fmt.Errorf("no interface has an address in the network of gateway %s", e.Gateway)
}
