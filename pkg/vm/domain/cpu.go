package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// processors returns the number of vCPUs, those that the guest may get while it runs included, and their topology.
// Fields of the topology that are not set count as one; with none set, the vCPUs follow the CPU limit or request,
// rounded up, as sockets.
func processors(spec *v1.DomainSpec) (*libvirtxml.DomainVCPU, *libvirtxml.DomainCPUTopology) {
	t := libvirtxml.DomainCPUTopology{Cores: 1, Threads: 1}
	if c := spec.CPU; c != nil {
		t.Cores, t.Threads = max(1, int(c.Cores)), max(1, int(c.Threads))
	}
	online, most := sizing.Sockets(spec)
	t.Sockets = most
	vcpus := &libvirtxml.DomainVCPU{Placement: "static", Value: uint(most * sizing.PerSocket(spec))}
	if most > online {
		vcpus.Current = uint(online * sizing.PerSocket(spec))
	}
	return vcpus, &t
}

// cpu returns the guest's CPU. Under emulation there is no host CPU to show, so host-model (the default) and
// host-passthrough become all that QEMU can emulate; a named model stays the same, and features that QEMU cannot
// emulate are left out of it rather than refused.
func cpu(c *v1.CPU, t *libvirtxml.DomainCPUTopology, kvm bool) *libvirtxml.DomainCPU {
	out := &libvirtxml.DomainCPU{Topology: t}
	model := v1.CPUModeHostModel
	if c != nil && c.Model != "" {
		model = c.Model
	}
	switch {
	case model != v1.CPUModeHostModel && model != v1.CPUModeHostPassthrough:
		out.Mode, out.Match = "custom", "exact"
		out.Model = &libvirtxml.DomainCPUModel{Value: model}
		if !kvm {
			out.Check = "none"
		}
	case !kvm:
		// Five-level paging only makes emulated page walks longer.
		out.Mode = "maximum"
		out.Features = []libvirtxml.DomainCPUFeature{{Policy: "disable", Name: "la57"}}
	default:
		out.Mode = model
	}
	if c == nil {
		return out
	}
	for _, f := range c.Features {
		policy := f.Policy
		if policy == "" {
			policy = "require"
		}
		out.Features = append(out.Features, libvirtxml.DomainCPUFeature{Policy: policy, Name: f.Name})
	}
	return out
}
