package domain

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// processors gives the number of vCPUs and their topology. Fields of the topology that are not set
// count as one; with none set, the vCPUs follow the CPU limit or request, rounded up, as sockets.
func processors(spec *v1.DomainSpec) (uint, *libvirtxml.DomainCPUTopology) {
	t := libvirtxml.DomainCPUTopology{Sockets: 1, Cores: 1, Threads: 1}
	if c := spec.CPU; c != nil && (c.Sockets != 0 || c.Cores != 0 || c.Threads != 0) {
		t.Sockets = max(1, int(c.Sockets))
		t.Cores = max(1, int(c.Cores))
		t.Threads = max(1, int(c.Threads))
	} else if q, ok := spec.Resources.Limits[corev1.ResourceCPU]; ok {
		t.Sockets = max(1, int(q.Value()))
	} else if q, ok := spec.Resources.Requests[corev1.ResourceCPU]; ok {
		t.Sockets = max(1, int(q.Value()))
	}
	return uint(t.Sockets * t.Cores * t.Threads), &t
}

// cpu gives the guest's CPU. Under emulation there is no host CPU to show, so host-model (the default)
// and host-passthrough become all that QEMU can emulate; a named model stays what it is, and features
// that QEMU cannot emulate are left out of it rather than refused.
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

// memoryBytes is the guest's memory: memory.guest, else the memory request, else the limit.
func memoryBytes(spec *v1.DomainSpec) (uint, error) {
	bytes := int64(0)
	if m := spec.Memory; m != nil && m.Guest != nil {
		bytes = m.Guest.Value()
	} else if q, ok := spec.Resources.Requests[corev1.ResourceMemory]; ok {
		bytes = q.Value()
	} else if q, ok := spec.Resources.Limits[corev1.ResourceMemory]; ok {
		bytes = q.Value()
	}
	if bytes <= 0 || bytes == math.MaxInt64 {
		return 0, field("spec.domain.memory.guest", "the guest's memory is not set")
	}
	return uint(bytes), nil
}
