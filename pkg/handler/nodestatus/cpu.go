package nodestatus

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// ownedByCPU are the labels that describe a node's CPU.
var ownedByCPU = []string{
	v1.CPUModelLabel, v1.CPUFeatureLabel, v1.CPUModelVendorLabel, v1.HypervLabel, v1.CPUTimerLabel,
}

// ownedByHostModel are those that describe what guests with host-model have, and which of them the node can take.
var ownedByHostModel = []string{
	v1.SupportedHostModelMigrationCPU, v1.HostModelCPULabel, v1.HostModelRequiredFeaturesLabel,
	v1.NodeHostModelIsObsoleteLabel,
}

// always are features that KVM has whatever the CPU, without saying so.
var always = []string{"x2apic", "tsc-deadline", "hypervisor", "apic"}

// Processor is the CPU that guests of a node can have.
type Processor struct {
	// hardware is nil where guests are emulated.
	hardware *Hardware
	features []string
	models   []string
	vendor   string
	// host is the model that guests with host-model have, and beyond the features that such a guest needs besides. As
	// long as libvirt has not said, that is the model that is most like the CPU.
	host   string
	beyond []string
	known  *cpuMap
}

// ReadProcessor reads libvirt's map of CPU models in a directory, for a node with such a hardware, nil for none.
func ReadProcessor(dir string, hardware *Hardware) (*Processor, error) {
	m, err := readMap(dir)
	if err != nil {
		return nil, err
	}
	if hardware == nil {
		cpu := m.with(CPU{}, emulatedFeatures)
		return &Processor{features: m.featuresOf(&cpu), models: m.usable(&cpu), vendor: emulatedVendor}, nil
	}
	cpu := m.with(hardware.CPU, always)
	p := &Processor{
		hardware: hardware, features: m.featuresOf(&cpu), models: m.usable(&cpu), vendor: m.vendor(&cpu), known: m,
	}
	p.host, p.beyond = m.closest(&cpu, p.models)
	return p, nil
}

// with returns the CPU with features besides its own.
func (m *cpuMap) with(cpu CPU, features []string) CPU {
	out := CPU{Leaves: map[Leaf]Registers{}, MSRs: cpu.MSRs}
	maps.Copy(out.Leaves, cpu.Leaves)
	for _, name := range features {
		for _, b := range m.features[name].cpuid {
			has := out.Leaves[b.Leaf]
			for i := range has {
				has[i] |= b.Mask[i]
			}
			out.Leaves[b.Leaf] = has
		}
	}
	return out
}

// labels returns the labels of a node with the processor; obsolete are models that are not to be used any more.
func (p *Processor) labels(obsolete map[string]bool) Wanted {
	out := Wanted{Labels: map[string]string{}, Owned: slices.Concat(ownedByCPU, ownedByHostModel)}
	set := func(prefix string, names ...string) {
		for _, name := range names {
			out.Labels[prefix+name] = "true"
		}
	}
	current := slices.DeleteFunc(slices.Clone(p.models), func(name string) bool { return obsolete[name] })
	set(v1.CPUModelLabel, current...)
	set(v1.SupportedHostModelMigrationCPU, current...)
	set(v1.CPUFeatureLabel, p.features...)
	if p.vendor != "" {
		set(v1.CPUModelVendorLabel, p.vendor)
	}
	if p.host != "" {
		set(v1.HostModelCPULabel, p.host)
		set(v1.HostModelRequiredFeaturesLabel, p.beyond...)
		if obsolete[p.host] {
			set(v1.NodeHostModelIsObsoleteLabel, "")
		} else {
			set(v1.SupportedHostModelMigrationCPU, p.host)
		}
	}
	if p.hardware == nil {
		return out
	}
	set(v1.HypervLabel, p.hardware.Enlightenments...)
	if p.hardware.TSC > 0 {
		out.Labels[names.LabelTSCFrequency] = fmt.Sprint(p.hardware.TSC)
		out.Labels[names.LabelTSCScalable] = fmt.Sprint(p.hardware.TSCScalable)
	}
	return out
}

// ErrNotYet says that it is being found out.
var ErrNotYet = errors.New("not known yet")

// CPULabels returns the labels that describe the CPU which guests of a node can have: the hardware's or, where that is
// nil or the installation emulates all guests, what QEMU emulates. Both are read when they are first looked at. host
// returns libvirt's description of the hardware. While its error is ErrNotYet, the node's labels for it stay; with any
// other error the closest model that the hardware has in full stands for it.
func CPULabels(
	hardware, emulated func() (*Processor, error), host func() (HostModel, error),
	installation func() (emulate bool, obsolete map[string]bool),
) Labels {
	return func() (Wanted, error) {
		emulate, obsolete := installation()
		emulate = emulate || hardware == nil
		read := hardware
		if emulate {
			read = emulated
		}
		p, err := read()
		if err != nil {
			return Wanted{}, fmt.Errorf("find out which CPUs guests can have: %w", err)
		}
		if emulate {
			return p.labels(obsolete), nil
		}
		h, err := host()
		switch {
		case errors.Is(err, ErrNotYet):
			return p.labels(obsolete).without(ownedByHostModel), nil
		case err != nil:
			return p.labels(obsolete), fmt.Errorf("find out which CPU host-model is: %w", err)
		}
		return p.With(h).labels(obsolete), nil
	}
}

// without leaves keys as they are on the node.
func (w Wanted) without(owned []string) Wanted {
	left := Wanted{Owned: owned}
	maps.DeleteFunc(w.Labels, func(key, _ string) bool { return left.owns(key) })
	w.Owned = slices.DeleteFunc(w.Owned, func(key string) bool { return slices.Contains(owned, key) })
	return w
}
