package main

import (
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"
)

// v2Ethernet is one entry of `ethernets:` in version 2, which is netplan's:
// https://cloudinit.readthedocs.io/en/latest/reference/network-config-format-v2.html
type v2Ethernet struct {
	Match struct {
		MAC  string `yaml:"macaddress"`
		Name string `yaml:"name"`
	} `yaml:"match"`
	SetName   string   `yaml:"set-name"`
	MTU       int      `yaml:"mtu"`
	DHCP4     bool     `yaml:"dhcp4"`
	DHCP6     bool     `yaml:"dhcp6"`
	Addresses []string `yaml:"addresses"`
	Gateway4  string   `yaml:"gateway4"`
	Gateway6  string   `yaml:"gateway6"`
	DNS       struct {
		Addresses list `yaml:"addresses"`
		Search    list `yaml:"search"`
	} `yaml:"nameservers"`
	Routes []struct {
		To     string `yaml:"to"`
		Via    string `yaml:"via"`
		Metric int    `yaml:"metric"`
	} `yaml:"routes"`
}

func parseV2(doc yaml.Node) (*Network, error) {
	var in struct {
		Ethernets yaml.Node            `yaml:"ethernets"`
		Rest      map[string]yaml.Node `yaml:",inline"`
	}
	if err := doc.Decode(&in); err != nil {
		return nil, err
	}
	n := &Network{}
	for _, kind := range []string{"bonds", "bridges", "vlans", "wifis"} {
		if _, ok := in.Rest[kind]; ok {
			n.Ignored = append(n.Ignored, kind+" are not supported by the tiny guest")
		}
	}
	if in.Ethernets.Kind != 0 && in.Ethernets.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: ethernets is a mapping of names", in.Ethernets.Line)
	}
	// The order in the file counts, so the mapping is walked, not decoded.
	for k := 0; k+1 < len(in.Ethernets.Content); k += 2 {
		id := in.Ethernets.Content[k].Value
		var e v2Ethernet
		if err := in.Ethernets.Content[k+1].Decode(&e); err != nil {
			return nil, fmt.Errorf("ethernets.%s: %w", id, err)
		}
		i, err := e.read(id)
		if err != nil {
			return nil, fmt.Errorf("ethernets.%s: %w", id, err)
		}
		n.Interfaces = append(n.Interfaces, i)
		n.DNS = appendNew(n.DNS, e.DNS.Addresses...)
		n.Search = appendNew(n.Search, e.DNS.Search...)
	}
	return n, nil
}

// read gives the interface. Without `match` its key is its name.
func (e *v2Ethernet) read(id string) (Interface, error) {
	i := Interface{
		Name: e.Match.Name, MAC: strings.ToLower(e.Match.MAC), Rename: e.SetName,
		MTU: e.MTU, DHCP4: e.DHCP4, DHCP6: e.DHCP6,
	}
	if i.Name == "" && i.MAC == "" {
		i.Name = id
	}
	for _, a := range e.Addresses {
		p, err := netip.ParsePrefix(a)
		if err != nil {
			return i, fmt.Errorf("addresses: %w", err)
		}
		i.Addresses = append(i.Addresses, p)
	}
	for _, g := range []string{e.Gateway4, e.Gateway6} {
		if err := i.addGateway(g); err != nil {
			return i, err
		}
	}
	for _, r := range e.Routes {
		if err := i.addRoute(r.To, "", r.Via, r.Metric); err != nil {
			return i, err
		}
	}
	return i, nil
}
