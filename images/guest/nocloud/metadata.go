package main

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MetaData is what the tiny guest takes from meta-data.
type MetaData struct {
	InstanceID string
	Hostname   string
	Keys       []string
}

// ParseMetaData reads NoCloud's meta-data, or OpenStack's meta_data.json, which is YAML too.
func ParseMetaData(data []byte) (MetaData, error) {
	var in struct {
		InstanceID    string    `yaml:"instance-id"`
		LocalHostname string    `yaml:"local-hostname"`
		Hostname      string    `yaml:"hostname"`
		UUID          string    `yaml:"uuid"`
		Keys          yaml.Node `yaml:"public-keys"`
		OpenStackKeys yaml.Node `yaml:"public_keys"`
	}
	if err := yaml.Unmarshal(data, &in); err != nil {
		return MetaData{}, err
	}
	m := MetaData{InstanceID: in.InstanceID, Hostname: in.LocalHostname}
	if m.Hostname == "" {
		m.Hostname = in.Hostname
	}
	if m.InstanceID == "" {
		m.InstanceID = in.UUID
	}
	for _, n := range []yaml.Node{in.Keys, in.OpenStackKeys} {
		m.Keys = append(m.Keys, keys(n)...)
	}
	return m, nil
}

// keys reads public keys in any of the shapes they come in: one string with lines, a list, a
// mapping of names to a key or to a list of keys.
func keys(n yaml.Node) (found []string) {
	switch n.Kind {
	case yaml.ScalarNode:
		for line := range strings.Lines(n.Value) {
			if line = strings.TrimSpace(line); line != "" {
				found = append(found, line)
			}
		}
	case yaml.SequenceNode:
		for _, child := range n.Content {
			found = append(found, keys(*child)...)
		}
	case yaml.MappingNode:
		var byName map[string]yaml.Node
		if n.Decode(&byName) != nil {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			found = append(found, keys(byName[name])...)
		}
	}
	return found
}

// addMeta puts meta-data below what user-data says.
func (c *Config) addMeta(m MetaData) {
	if c.Hostname == "" {
		c.Hostname = m.Hostname
	}
	c.InstanceID = m.InstanceID
	for _, k := range m.Keys {
		if !slices.Contains(c.Keys, k) {
			c.Keys = append(c.Keys, k)
		}
	}
}
