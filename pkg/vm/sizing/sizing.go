// Package sizing computes how large a guest is, and how large it may become while it runs: CPU sockets up to
// domain.cpu.maxSockets, memory up to domain.memory.maxGuest. It is pure. Admission fills in and checks the bounds by
// it, virt-controller decides by it which sizes of a changed template the running guest can get, and the domain is made
// with that room.
package sizing

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

const (
	// MaxVCPUs is more than any node has: a guest with as many waits for one. To one with more than plain, libvirt adds
	// an IOMMU that remaps interrupts.
	MaxVCPUs = 1 << 20
	// MachineVCPUs is the largest number of vCPUs of machine type q35, so no guest can have room for more.
	MachineVCPUs = 4096
	// plain is the largest number of vCPUs without an IOMMU: no guest is given room for more unasked.
	plain = 255
	// block is the unit in which memory is added and removed, bytes: a transparent huge page.
	block = 2 << 20
	// roomy is the least memory, bytes, with which a guest gets room to grow unasked. The room lies above 4 GiB, and
	// Linux that may get memory there sets 64 MiB aside for devices that do not reach it.
	roomy = 1 << 30
	// MaxMemory is more than any node has, bytes, and small enough for arithmetic.
	MaxMemory = 1 << 60
)

// Bounds are an installation's defaults for guests that do not say how far they may grow:
// spec.configuration.liveUpdateConfiguration.
type Bounds struct {
	// Ratio is the factor by which a guest may grow; MaxSockets and MaxGuest (bytes) take precedence. 0 is not set.
	Ratio      uint32
	MaxSockets uint32
	MaxGuest   int64
}

// DefaultRatio is KubeVirt's.
const DefaultRatio = 4

// Sockets returns how many the guest has while it starts and how many it may get: domain.cpu as admission leaves it, or
// else as many vCPUs as the CPU limit or request has whole CPUs.
func Sockets(domain *v1.DomainSpec) (online, most int) {
	online = 1
	if c := domain.CPU; c != nil && (c.Sockets != 0 || c.Cores != 0 || c.Threads != 0) {
		online = max(1, int(c.Sockets))
	} else {
		for _, list := range []corev1.ResourceList{domain.Resources.Limits, domain.Resources.Requests} {
			if q, ok := list[corev1.ResourceCPU]; ok {
				online = max(1, int(q.Value()))
				break
			}
		}
	}
	most = online
	if domain.CPU != nil {
		most = max(most, int(domain.CPU.MaxSockets))
	}
	return online, most
}

// PerSocket returns how many vCPUs a socket has, MaxVCPUs or fewer.
func PerSocket(domain *v1.DomainSpec) int {
	if domain.CPU == nil {
		return 1
	}
	cores, threads := min(max(1, domain.CPU.Cores), MaxVCPUs), min(max(1, domain.CPU.Threads), MaxVCPUs)
	return min(int(cores)*int(threads), MaxVCPUs)
}

// Product returns sockets × cores × threads, each at least one, as cpu says them: what messages name. VCPUs caps cores
// and threads, and knows guests whose vCPUs their resources say.
func Product(cpu *v1.CPU) int64 {
	product := int64(1)
	for _, factor := range []uint32{cpu.Sockets, cpu.Cores, cpu.Threads} {
		n := int64(max(factor, 1))
		if product > math.MaxInt64/n {
			return math.MaxInt64
		}
		product *= n
	}
	return product
}

// VCPUs returns how many the guest has while it starts.
func VCPUs(domain *v1.DomainSpec) int {
	sockets, _ := Sockets(domain)
	return sockets * PerSocket(domain)
}

// Memory returns the memory of the guest while it starts: memory.guest, else what its pod requests, else the pod's
// limit, else one huge page. It reports false when the domain says none of these.
func Memory(domain *v1.DomainSpec) (resource.Quantity, bool) {
	if m := domain.Memory; m != nil && m.Guest != nil {
		return *m.Guest, true
	}
	for _, list := range []corev1.ResourceList{domain.Resources.Requests, domain.Resources.Limits} {
		if quantity, ok := list[corev1.ResourceMemory]; ok {
			return quantity, true
		}
	}
	if m := domain.Memory; m != nil && m.Hugepages != nil {
		page, err := resource.ParseQuantity(m.Hugepages.PageSize)
		return page, err == nil // what is no size is refused by validation
	}
	return resource.Quantity{}, false
}

// NoUnit reports a guest's memory that is less than any guest has: a number that was given without its unit.
func NoUnit(memory resource.Quantity) bool { return memory.Value() < 1<<20 }

// Current returns the memory that a guest has now, or will start with.
func Current(vmi *v1.VirtualMachineInstance) resource.Quantity {
	if m := vmi.Status.Memory; m != nil && m.GuestCurrent != nil {
		return *m.GuestCurrent
	}
	memory, _ := Memory(&vmi.Spec.Domain) // zero when an instance type is to say it
	return memory
}

// Alignment returns the alignment of the memory of a guest that is to grow, bytes: whole huge pages.
func Alignment(domain *v1.DomainSpec) int64 { return max(block, PageSize(domain)) }

// PageSize returns the page size of the huge pages that the guest is on, bytes; 0 for none, or for a text that is no
// size.
func PageSize(domain *v1.DomainSpec) int64 {
	if domain.Memory == nil || domain.Memory.Hugepages == nil {
		return 0
	}
	page, err := resource.ParseQuantity(domain.Memory.Hugepages.PageSize)
	if err != nil || page.Sign() <= 0 {
		return 0
	}
	return page.Value()
}

// MemoryObstacle returns why the guest's memory cannot grow whatever the bound, or "" when it can.
func MemoryObstacle(domain *v1.DomainSpec) string {
	switch c := domain.CPU; {
	case domain.Memory == nil || domain.Memory.Guest == nil:
		return "the guest's memory is not set"
	case c != nil && c.Realtime != nil:
		return "cannot be combined with cpu.realtime"
	case c != nil && c.NUMA != nil && c.NUMA.GuestMappingPassthrough != nil:
		return "cannot be combined with cpu.numa.guestMappingPassthrough"
	case domain.LaunchSecurity != nil:
		return "cannot be combined with launchSecurity"
	case PageSize(domain) != 0 && block%PageSize(domain) != 0 && PageSize(domain)%block != 0:
		return fmt.Sprintf("needs huge pages of %dMi or a multiple of it", block>>20)
	case domain.Memory.Guest.Value()%Alignment(domain) != 0:
		return fmt.Sprintf("needs guest memory that is a multiple of %dMi", Alignment(domain)>>20)
	}
	return ""
}

// DefaultMaxSockets returns maxSockets of a guest that sets none.
func (b Bounds) DefaultMaxSockets(domain *v1.DomainSpec) uint32 {
	sockets, _ := Sockets(domain)
	if !acpi(domain) || domain.CPU != nil && domain.CPU.NUMA != nil || encryptedState(domain) {
		return 0
	}
	if b.MaxSockets > 0 {
		return max(b.MaxSockets, uint32(min(sockets, MaxVCPUs)))
	}
	// Each factor is capped so that the products stay small.
	most := min(int64(min(sockets, plain))*int64(min(b.Ratio, plain)),
		int64(plain/min(PerSocket(domain), plain)))
	return uint32(max(most, int64(sockets)))
}

// encryptedState reports a guest to which no vCPU can be added, since their state is encrypted when it starts.
func encryptedState(domain *v1.DomainSpec) bool {
	l := domain.LaunchSecurity
	return l != nil && l.SEV != nil && l.SEV.Policy != nil && l.SEV.Policy.EncryptedState != nil &&
		*l.SEV.Policy.EncryptedState
}

// DefaultMaxGuest returns maxGuest, bytes, of a guest that sets none; 0 means no room.
func (b Bounds) DefaultMaxGuest(domain *v1.DomainSpec) int64 {
	if MemoryObstacle(domain) != "" || !acpi(domain) || domain.Memory.Guest.Value() < roomy {
		return 0
	}
	guest, align := domain.Memory.Guest.Value(), Alignment(domain)
	most := b.MaxGuest
	if most == 0 && guest < MaxMemory {
		most = MaxMemory
		if ratio := int64(min(b.Ratio, 1<<10)); guest <= MaxMemory/max(ratio, 1) {
			most = guest * ratio
		}
	}
	most -= most % align
	if most <= guest {
		return 0
	}
	return most
}

// acpi reports whether the guest can be notified of what is plugged in.
func acpi(domain *v1.DomainSpec) bool {
	f := domain.Features
	return f == nil || f.ACPI.Enabled == nil || *f.ACPI.Enabled
}

// Reasons of the conditions HotVCPUChange and HotMemoryChange, which say that a running guest is to have another size
// than it has. virt-controller writes them.
const (
	// ReasonPodResizing: the pod is being given what the guest needs.
	ReasonPodResizing = "PodResizing"
	// ReasonPodResized: it has it, and virt-handler may change the guest.
	ReasonPodResized = "PodResized"
	// ReasonPodResizeRefused: it cannot have it, for a reason that may pass.
	ReasonPodResizeRefused = "PodResizeRefused"
	// ReasonNoRoom: the pod's node has no room for it, so the guest is to move.
	ReasonNoRoom = "PodResizeInfeasible"
	// ReasonRestart: nor can the guest move, so only a restart gives it the size.
	ReasonRestart = "NotMigratable"
)

// Resizing returns the condition of a VMI whose guest is to change its CPUs or its memory; nil when it is not.
func Resizing(
	vmi *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType,
) *v1.VirtualMachineInstanceCondition {
	return conditions.With(vmi.Status.Conditions, kind, corev1.ConditionTrue)
}

// MayResize reports whether the guest of a VMI may be given its size now: its pod has room for it.
func MayResize(vmi *v1.VirtualMachineInstance) bool {
	for _, kind := range []v1.VirtualMachineInstanceConditionType{
		v1.VirtualMachineInstanceVCPUChange,
		v1.VirtualMachineInstanceMemoryChange,
	} {
		if c := Resizing(vmi, kind); c != nil && c.Reason == ReasonPodResized {
			return true
		}
	}
	return false
}
