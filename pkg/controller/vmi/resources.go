package vmi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

const (
	mebi = 1 << 20

	// overheadBase is what a launcher pod needs beyond the guest's memory, whatever the guest:
	// libvirtd 21 MiB and the launcher 11 MiB (measured), QEMU itself and its buffers 40 MiB. Under
	// software emulation QEMU's translation cache of 32 MiB comes out of the guest memory that such
	// small guests never touch at once; QEMU's and libvirt's code is page cache and is not counted.
	overheadBase = 72 * mebi
	// overheadVCPU is for a vCPU's thread, stack and state.
	overheadVCPU = 8 * mebi
	// overheadGraphics is the VGA frame buffer and the VNC server's copy of it.
	overheadGraphics = 16 * mebi
	// overheadTPM is swtpm.
	overheadTPM = 8 * mebi
	// pageTableRatio: page tables take 8 bytes for each 4 KiB page of the guest.
	pageTableRatio = 512
)

// Overhead is the memory in bytes that the pod needs beyond the guest's.
func Overhead(vmi *v1.VirtualMachineInstance, ratio float64) int64 {
	overhead := int64(overheadBase) + vcpus(vmi)*overheadVCPU + guestMemory(vmi).Value()/pageTableRatio
	if graphics := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; graphics == nil || *graphics {
		overhead += overheadGraphics
	}
	if tpm := vmi.Spec.Domain.Devices.TPM; tpm != nil && (tpm.Enabled == nil || *tpm.Enabled) {
		overhead += overheadTPM
	}
	if ratio > 1 {
		overhead = int64(float64(overhead) * ratio)
	}
	return overhead
}

// resources are the container's: the guest's, plus the overhead, plus the KVM device.
func resources(vmi *v1.VirtualMachineInstance, facts Facts) corev1.ResourceRequirements {
	overhead := Overhead(vmi, facts.Config.MemoryOverheadRatio)
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	given := vmi.Spec.Domain.Resources
	for name, quantity := range given.Requests {
		out.Requests[name] = quantity.DeepCopy()
	}
	for name, quantity := range given.Limits {
		out.Limits[name] = quantity.DeepCopy()
	}

	if _, ok := given.Requests[corev1.ResourceMemory]; !ok {
		request := guestMemory(vmi).Value()
		if overcommit := facts.Config.MemoryOvercommit; overcommit > 0 {
			request = request * 100 / int64(overcommit)
		}
		out.Requests[corev1.ResourceMemory] = *resource.NewQuantity(request, resource.BinarySI)
	}
	addBytes(out.Requests, corev1.ResourceMemory, overhead)
	if _, ok := out.Limits[corev1.ResourceMemory]; ok {
		addBytes(out.Limits, corev1.ResourceMemory, overhead)
	}

	_, requested := given.Requests[corev1.ResourceCPU]
	limit, limited := given.Limits[corev1.ResourceCPU]
	switch {
	case requested:
	case limited:
		out.Requests[corev1.ResourceCPU] = limit.DeepCopy()
	case facts.Config.CPURequest != nil:
		out.Requests[corev1.ResourceCPU] = facts.Config.CPURequest.DeepCopy()
	case facts.Config.CPUAllocationRatio > 0:
		out.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(
			max(1, vcpus(vmi)*1000/int64(facts.Config.CPUAllocationRatio)), resource.DecimalSI)
	}

	if facts.KVM && !facts.Config.UseEmulation {
		out.Limits[names.ResourceKVM] = resource.MustParse("1")
		out.Requests[names.ResourceKVM] = resource.MustParse("1")
	}
	if len(out.Limits) == 0 {
		out.Limits = nil
	}
	return out
}

func addBytes(list corev1.ResourceList, name corev1.ResourceName, bytes int64) {
	quantity := list[name]
	quantity.Add(*resource.NewQuantity(bytes, resource.BinarySI))
	list[name] = quantity
}

// guestMemory is what the guest sees, bytes.
func guestMemory(vmi *v1.VirtualMachineInstance) *resource.Quantity {
	domain := &vmi.Spec.Domain
	if domain.Memory != nil && domain.Memory.Guest != nil {
		return domain.Memory.Guest
	}
	if request, ok := domain.Resources.Requests[corev1.ResourceMemory]; ok {
		return &request
	}
	limit := domain.Resources.Limits[corev1.ResourceMemory]
	return &limit
}

// vcpus is how many the guest has: by its topology, else as many as whole CPUs it asks for.
func vcpus(vmi *v1.VirtualMachineInstance) int64 {
	domain := &vmi.Spec.Domain
	if cpu := domain.CPU; cpu != nil && (cpu.Cores > 0 || cpu.Sockets > 0 || cpu.Threads > 0) {
		return int64(max(1, cpu.Cores)) * int64(max(1, cpu.Sockets)) * int64(max(1, cpu.Threads))
	}
	for _, list := range []corev1.ResourceList{domain.Resources.Limits, domain.Resources.Requests} {
		if quantity, ok := list[corev1.ResourceCPU]; ok {
			return max(1, quantity.Value())
		}
	}
	return 1
}
