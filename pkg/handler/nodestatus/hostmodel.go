package nodestatus

import (
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// maxHostFeatures bounds what a host model may name; libvirt knows some 400 features.
const maxHostFeatures = 1000

// labelName matches what may end a label's key.
var labelName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// HostModel is the CPU that libvirt gives a guest of a node whose model is host-model: a model with features beside its
// own, and without some of them that the node does not have.
type HostModel struct {
	Model            string
	Require, Disable []string
}

// ParseHostModel reads it from libvirt's domain capabilities, which a probe of the node has printed.
func ParseHostModel(capabilities []byte) (HostModel, error) {
	var file struct {
		XMLName xml.Name `xml:"domainCapabilities"`
		Modes   []struct {
			Name      string `xml:"name,attr"`
			Supported string `xml:"supported,attr"`
			Model     string `xml:"model"`
			Features  []struct {
				Policy string `xml:"policy,attr"`
				Name   string `xml:"name,attr"`
			} `xml:"feature"`
		} `xml:"cpu>mode"`
	}
	if err := xml.Unmarshal(capabilities, &file); err != nil {
		return HostModel{}, fmt.Errorf("read domain capabilities: %w", err)
	}
	for _, mode := range file.Modes {
		if mode.Name != "host-model" || mode.Supported != "yes" {
			continue
		}
		if !labelName.MatchString(mode.Model) || len(mode.Features) > maxHostFeatures {
			return HostModel{}, fmt.Errorf("domain capabilities: %.64q with %d features is no host model", mode.Model,
				len(mode.Features))
		}
		out := HostModel{Model: mode.Model}
		for _, f := range mode.Features {
			switch {
			case !labelName.MatchString(f.Name):
				return HostModel{}, fmt.Errorf("domain capabilities: %.64q is no feature of a CPU", f.Name)
			case f.Policy == "require" || f.Policy == "force":
				out.Require = append(out.Require, f.Name)
			case f.Policy == "disable" || f.Policy == "forbid":
				out.Disable = append(out.Disable, f.Name)
			}
		}
		return out, nil
	}
	return HostModel{}, errors.New("domain capabilities: libvirt has no host model")
}

// With returns the processor whose guests with host-model have the CPU that libvirt says. Where libvirt leaves out
// features of the model, another node that shows the model may lack other ones: then all that the guest has left of the
// model is beyond it, so that it moves to nodes that have that.
func (p *Processor) With(h HostModel) *Processor {
	out := *p
	out.host, out.beyond = versioned.ReplaceAllString(h.Model, ""), slices.Clone(h.Require)
	if needs, _ := p.known.needs(h.Model, 0); len(h.Disable) > 0 {
		for _, feature := range needs {
			// Of what the map says no bits of, no node says that it has it.
			f := p.known.features[feature]
			if !slices.Contains(h.Disable, feature) && len(f.cpuid)+len(f.msrs) > 0 {
				out.beyond = append(out.beyond, feature)
			}
		}
	}
	slices.Sort(out.beyond)
	out.beyond = slices.Compact(out.beyond)
	// KVM has what libvirt found there, also where we look for it elsewhere.
	out.features = append(slices.Clone(p.features), out.beyond...)
	slices.Sort(out.features)
	out.features = slices.Compact(out.features)
	return &out
}
