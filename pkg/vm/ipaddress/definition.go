package ipaddress

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// The plugins that the rules know by name.
const (
	hostLocal     = "host-local"
	static        = "static"
	ovnKubernetes = "ovn-k8s-cni-overlay"
	kubeOVN       = "kube-ovn"
)

// Definition is what a NetworkAttachmentDefinition says of its network's addresses.
type Definition struct {
	// Plugin is the CNI plugin that gives pods their link, IPAM the one that gives that link its addresses; "" where
	// there is none.
	Plugin, IPAM string
	// Unread says that the configuration is in a file of each node, not in the definition.
	Unread bool
	// Takes says that Plugin is declared to take addresses that a pod asks for (capability ips).
	Takes bool
	// Persistent says that OVN-Kubernetes keeps addresses for VMs (allowPersistentIPs).
	Persistent bool
	// Own are the addresses that static gives each pod that asks for none.
	Own []netip.Prefix
	// Ranges are the addresses of host-local; a pod gets one of each set.
	Ranges []Set
}

// Set is a list of ranges of which a pod gets one address.
type Set []Range

// Range is what host-local gives addresses from, both ends included, but for the gateway's.
type Range struct{ First, Last, Gateway netip.Addr }

// contains reports whether a pod may ask for an address of the set.
func (s Set) contains(a netip.Addr) bool {
	for _, r := range s {
		if r.First.Is4() == a.Is4() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 && a != r.Gateway {
			return true
		}
	}
	return false
}

// String returns the set as host-local writes it in its errors.
func (s Set) String() string {
	var out []string
	for _, r := range s {
		out = append(out, r.First.String()+"-"+r.Last.String())
	}
	return strings.Join(out, ",")
}

// conf is a CNI configuration, of one plugin or of a list of them.
type conf struct {
	Plugins []plugin `json:"plugins"`
	plugin
}

type plugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	IPAM         struct {
		rangeConf
		Type string `json:"type"`
		// Ranges are host-local's, Addresses static's; other plugins may have others of these names.
		Ranges    json.RawMessage `json:"ranges"`
		Addresses json.RawMessage `json:"addresses"`
	} `json:"ipam"`
	// Subnets and AllowPersistentIPs are OVN-Kubernetes's.
	Subnets            json.RawMessage `json:"subnets"`
	AllowPersistentIPs json.RawMessage `json:"allowPersistentIPs"`
}

type rangeConf struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart"`
	RangeEnd   string `json:"rangeEnd"`
	Gateway    string `json:"gateway"`
}

// ParseDefinition reads spec.config of a NetworkAttachmentDefinition.
func ParseDefinition(config string) (*Definition, error) {
	if strings.TrimSpace(config) == "" {
		return &Definition{Unread: true}, nil
	}
	var c conf
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return nil, fmt.Errorf("spec.config is not a CNI configuration: %w", err)
	}
	plugins := c.Plugins
	if len(plugins) == 0 {
		plugins = []plugin{c.plugin}
	}
	p := &plugins[0]
	for i := range plugins {
		if plugins[i].IPAM.Type != "" {
			p = &plugins[i]
			break
		}
	}
	out := &Definition{Plugin: p.Type, IPAM: p.IPAM.Type, Takes: p.Capabilities["ips"]}
	switch {
	case p.Type == kubeOVN && out.IPAM == "":
		out.IPAM = kubeOVN
	case p.Type == ovnKubernetes && subnets(p.Subnets):
		out.IPAM, out.Persistent = ovnKubernetes, string(p.AllowPersistentIPs) == "true"
	case out.IPAM == static:
		var addresses []struct {
			Address string `json:"address"`
		}
		_ = json.Unmarshal(p.IPAM.Addresses, &addresses) // what it cannot read static refuses, for every pod
		for _, own := range addresses {
			if prefix, err := netip.ParsePrefix(own.Address); err == nil { // else static refuses every pod
				out.Own = append(out.Own, prefix)
			}
		}
	case out.IPAM == hostLocal:
		out.Ranges = p.ranges()
	}
	return out, nil
}

// subnets reports whether OVN-Kubernetes gives addresses: those of a list, with commas between.
func subnets(raw json.RawMessage) bool {
	var text string
	return json.Unmarshal(raw, &text) == nil && text != ""
}

// ranges returns the sets of host-local; nil where one cannot be read, which host-local refuses.
func (p *plugin) ranges() []Set {
	var lists [][]rangeConf
	if len(p.IPAM.Ranges) > 0 && json.Unmarshal(p.IPAM.Ranges, &lists) != nil {
		return nil
	}
	if p.IPAM.Subnet != "" {
		lists = append([][]rangeConf{{p.IPAM.rangeConf}}, lists...)
	}
	var out []Set
	for _, list := range lists {
		var set Set
		for _, c := range list {
			r, ok := c.read()
			if !ok {
				return nil
			}
			set = append(set, r)
		}
		out = append(out, set)
	}
	return out
}

// read fills in what host-local does: the whole subnet, whose first address is the gateway's.
func (c rangeConf) read() (Range, bool) {
	subnet, err := netip.ParsePrefix(c.Subnet)
	if err != nil {
		return Range{}, false
	}
	subnet = subnet.Masked()
	first := subnet.Addr().Next()
	out := Range{First: first, Last: last(subnet), Gateway: first}
	if subnet.Addr().Is4() {
		out.Last = out.Last.Prev()
	}
	for _, given := range []struct {
		text string
		into *netip.Addr
	}{{c.RangeStart, &out.First}, {c.RangeEnd, &out.Last}, {c.Gateway, &out.Gateway}} {
		if given.text == "" {
			continue
		}
		if *given.into, err = netip.ParseAddr(given.text); err != nil {
			return Range{}, false
		}
	}
	return out, true
}
