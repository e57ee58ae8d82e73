package vmicontroller

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/peripherals"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

const (
	mebi = 1 << 20

	// overheadBase is the memory that any launcher pod needs beyond the guest's: libvirtd 21 MiB and the launcher 11
	// MiB (measured), QEMU itself and its buffers 40 MiB. Under software emulation QEMU's translation cache of 32 MiB
	// comes out of the guest memory that such small guests never touch at once; QEMU's and libvirt's code is page cache
	// and is not counted.
	overheadBase = 72 * mebi
	// overheadVCPU is for a vCPU's thread, stack and state.
	overheadVCPU = 8 * mebi
	// overheadGraphics covers the VGA frame buffer and the VNC server's copy of it.
	overheadGraphics = 16 * mebi
	// overheadTPM is swtpm.
	overheadTPM = 8 * mebi
	// pageTableRatio: page tables take 8 bytes for each 4 KiB page of the guest.
	pageTableRatio = 512
)

// Overhead returns the memory in bytes that the pod needs beyond the guest's.
func Overhead(vmi *v1.VirtualMachineInstance, ratio float64) int64 {
	overhead := int64(overheadBase) + vcpus(vmi)*overheadVCPU + guestMemory(vmi)/pageTableRatio
	if peripherals.Graphics(&vmi.Spec.Domain.Devices) {
		overhead += overheadGraphics
	}
	if peripherals.TPM(&vmi.Spec.Domain.Devices) {
		overhead += overheadTPM
	}
	if passthrough.VFIO(&vmi.Spec) {
		overhead += passthrough.MappedSpace
	}
	if passthrough.SEV(&vmi.Spec.Domain) {
		overhead += passthrough.EncryptionOverhead
	}
	if ratio > 1 {
		overhead = int64(float64(overhead) * ratio)
	}
	if m := vmi.Spec.Domain.Memory; m != nil && m.ReservedOverhead != nil && m.ReservedOverhead.AddedOverhead != nil {
		overhead += m.ReservedOverhead.AddedOverhead.Value()
	}
	return overhead
}

// resources returns the container's resources: the guest's, plus the overhead, plus the KVM device.
func resources(vmi *v1.VirtualMachineInstance, facts Facts) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	given := vmi.Spec.Domain.Resources
	for name, quantity := range given.Requests {
		out.Requests[name] = quantity.DeepCopy()
	}
	for name, quantity := range given.Limits {
		out.Limits[name] = quantity.DeepCopy()
	}
	memoryResources(&out, vmi, facts)
	cpuResources(&out, vmi, facts)
	if sizing.Dedicated(&vmi.Spec.Domain) {
		// Of all its CPUs and memory as much as it requests: only such a pod gets CPUs of its own.
		out.Limits[corev1.ResourceCPU] = out.Requests[corev1.ResourceCPU]
		out.Limits[corev1.ResourceMemory] = out.Requests[corev1.ResourceMemory]
	}
	if facts.KVM && !facts.Config.UseEmulation {
		out.Limits[names.ResourceKVM] = resource.MustParse("1")
		out.Requests[names.ResourceKVM] = resource.MustParse("1")
	}
	if passthrough.VSOCK(&vmi.Spec) {
		out.Limits[names.ResourceVSOCK] = resource.MustParse("1")
		out.Requests[names.ResourceVSOCK] = resource.MustParse("1")
	}
	if passthrough.SEV(&vmi.Spec.Domain) {
		out.Limits[names.ResourceSEV] = resource.MustParse("1")
		out.Requests[names.ResourceSEV] = resource.MustParse("1")
	}
	for name, n := range passthrough.Resources(&vmi.Spec) {
		quantity := *resource.NewQuantity(n, resource.DecimalSI)
		out.Limits[corev1.ResourceName(name)], out.Requests[corev1.ResourceName(name)] = quantity, quantity
	}
	requestNetworks(&out, facts.NetworkResources)
	if len(out.Limits) == 0 {
		out.Limits = nil
	}
	return out
}

// memoryResources adds the guest's memory where the VMI does not say what to request, and the overhead. A guest on huge
// pages takes its memory from those.
func memoryResources(out *corev1.ResourceRequirements, vmi *v1.VirtualMachineInstance, facts Facts) {
	guest := guestMemory(vmi)
	overhead := Overhead(vmi, facts.Config.MemoryOverheadRatio) + network.Plugins(facts.Config.Allowed.Bindings).
		Overhead(vmi)
	limit, limited := out.Limits[corev1.ResourceMemory]
	if _, ok := out.Requests[corev1.ResourceMemory]; !ok {
		request := guest
		overcommit := facts.Config.MemoryOvercommit
		switch {
		case sizing.Dedicated(&vmi.Spec.Domain) && limited:
			request = limit.Value()
		case overcommit > 0 && !sizing.Dedicated(&vmi.Spec.Domain) && pageSize(vmi) == "":
			request = overcommitted(request, int64(overcommit))
		}
		out.Requests[corev1.ResourceMemory] = *resource.NewQuantity(request, resource.BinarySI)
	}
	added := overhead
	if page := pageSize(vmi); page != "" {
		name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + page)
		pages := *resource.NewQuantity(guest, resource.BinarySI)
		out.Requests[name], out.Limits[name] = pages, pages
		request := out.Requests[corev1.ResourceMemory]
		out.Requests[corev1.ResourceMemory] = *resource.NewQuantity(max(0, request.Value()-guest), resource.BinarySI)
		if limited {
			out.Limits[corev1.ResourceMemory] = *resource.NewQuantity(max(0, limit.Value()-guest), resource.BinarySI)
		}
	} else if vmi.Spec.Domain.Resources.OvercommitGuestOverhead && !sizing.Dedicated(&vmi.Spec.Domain) {
		added = 0
	}
	addBytes(out.Requests, corev1.ResourceMemory, added)
	switch {
	case limited:
		addBytes(out.Limits, corev1.ResourceMemory, overhead)
	case facts.Limits.MemoryRatio > 0 && !sizing.Dedicated(&vmi.Spec.Domain):
		needed := overhead
		if pageSize(vmi) == "" {
			needed += guest
		}
		out.Limits[corev1.ResourceMemory] = limitMemory(out.Requests[corev1.ResourceMemory],
			facts.Limits.MemoryRatio, needed)
	}
}

// cpuResources requests CPUs where the VMI does not say how many.
func cpuResources(out *corev1.ResourceRequirements, vmi *v1.VirtualMachineInstance, facts Facts) {
	_, requested := out.Requests[corev1.ResourceCPU]
	limit, limited := out.Limits[corev1.ResourceCPU]
	if facts.Limits.CPU && !limited && !sizing.Dedicated(&vmi.Spec.Domain) {
		out.Limits[corev1.ResourceCPU] = most(out.Requests[corev1.ResourceCPU], vcpus(vmi))
	}
	switch {
	case sizing.Dedicated(&vmi.Spec.Domain):
		cpus := vcpus(vmi)
		if vmi.Spec.Domain.CPU.IsolateEmulatorThread {
			cpus++
		}
		out.Requests[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
	case requested:
	case limited:
		out.Requests[corev1.ResourceCPU] = limit.DeepCopy()
	case facts.Config.CPURequest != nil:
		out.Requests[corev1.ResourceCPU] = facts.Config.CPURequest.DeepCopy()
	case facts.Config.CPUAllocationRatio > 0:
		out.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(
			max(1, vcpus(vmi)*1000/int64(facts.Config.CPUAllocationRatio)), resource.DecimalSI)
	}
}

// overcommitted returns the request for a guest's memory, bytes: percent of it.
func overcommitted(memory, percent int64) int64 {
	whole, rest := memory/percent, memory%percent
	if whole > math.MaxInt64/200 {
		return math.MaxInt64 / 2 // no node has it, and the overhead can be added
	}
	return whole*100 + rest*100/percent
}

// pageSize returns the size of the huge pages that back the guest, or "" for none.
func pageSize(vmi *v1.VirtualMachineInstance) string {
	if m := vmi.Spec.Domain.Memory; m != nil && m.Hugepages != nil {
		return m.Hugepages.PageSize
	}
	return ""
}

func addBytes(list corev1.ResourceList, name corev1.ResourceName, bytes int64) {
	quantity := list[name]
	quantity.Add(*resource.NewQuantity(bytes, resource.BinarySI))
	list[name] = quantity
}

// guestMemory returns the memory that the guest sees, bytes.
func guestMemory(vmi *v1.VirtualMachineInstance) int64 {
	quantity, _ := sizing.Memory(&vmi.Spec.Domain) // admission asks for it
	return quantity.Value()
}

func vcpus(vmi *v1.VirtualMachineInstance) int64 { return int64(sizing.VCPUs(&vmi.Spec.Domain)) }

// Sizes returns the CPU and memory (and nothing else) that the container of a running guest's pod needs: both for the
// guest as it is and as its VMI says that it is to be, and for the latter alone.
func Sizes(
	vmi *v1.VirtualMachineInstance, installation config.Config, limits Limits,
) (both, fit corev1.ResourceRequirements) {
	larger := vmi.DeepCopy()
	domain := &larger.Spec.Domain
	if t := vmi.Status.CurrentCPUTopology; t != nil && domain.CPU != nil {
		domain.CPU.Sockets = max(domain.CPU.Sockets, t.Sockets)
	}
	if s := vmi.Status.Memory; s != nil && domain.Memory != nil && domain.Memory.Guest != nil {
		for _, quantity := range []*resource.Quantity{s.GuestCurrent, s.GuestRequested} {
			if quantity != nil && quantity.Cmp(*domain.Memory.Guest) > 0 {
				added := *resource.NewQuantity(quantity.Value()-domain.Memory.Guest.Value(), resource.BinarySI)
				domain.Memory.Guest = new(quantity.DeepCopy())
				for _, list := range []corev1.ResourceList{domain.Resources.Requests, domain.Resources.Limits} {
					if _, ok := list[corev1.ResourceMemory]; ok {
						addBytes(list, corev1.ResourceMemory, added.Value())
					}
				}
			}
		}
	}
	facts := Facts{Config: installation, Limits: limits}
	return compute(resources(larger, facts)), compute(resources(vmi, facts))
}

// compute leaves CPU and memory of a container's resources.
func compute(all corev1.ResourceRequirements) corev1.ResourceRequirements {
	only := func(list corev1.ResourceList) corev1.ResourceList {
		var out corev1.ResourceList
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if quantity, ok := list[name]; ok {
				if out == nil {
					out = corev1.ResourceList{}
				}
				out[name] = quantity
			}
		}
		return out
	}
	return corev1.ResourceRequirements{Requests: only(all.Requests), Limits: only(all.Limits)}
}
