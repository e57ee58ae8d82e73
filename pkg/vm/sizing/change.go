package sizing

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// The fields whose change reaches a guest that runs, below spec.template.spec.
const (
	SocketsPath = "domain.cpu.sockets"
	GuestPath   = "domain.memory.guest"
)

// Change holds what the changed size in a VM's template means for its running guest. The zero Change is none.
type Change struct {
	// Sockets and Guest are the VMI's sizes from now on; nil leaves them.
	Sockets *uint32
	Guest   *resource.Quantity
	// Refused says by path, below spec.template.spec, why the guest can have it only when it is started again.
	Refused map[string]string
}

// Any reports whether there is anything to change.
func (c Change) Any() bool { return c.Sockets != nil || c.Guest != nil }

// Of compares the present template of a VM, with its instance type and preference written into it, with its VMI. live
// says whether the installation changes running guests.
func Of(template *v1.DomainSpec, vmi *v1.VirtualMachineInstance, live bool) Change {
	var c Change
	refuse := func(path, why string) {
		if c.Refused == nil {
			c.Refused = map[string]string{}
		}
		c.Refused[path] = why
	}
	domain := &vmi.Spec.Domain
	given := template.CPU != nil && template.CPU.Sockets != 0
	if want, _ := Sockets(template); domain.CPU != nil && domain.CPU.Sockets != 0 &&
		uint32(want) != domain.CPU.Sockets {
		switch why := socketsObstacle(uint32(want), vmi); {
		case why == "" && !live:
			refuse(SocketsPath, staged)
		case why != "":
			refuse(SocketsPath, why)
		case given:
			c.Sockets = &template.CPU.Sockets
		default:
			refuse(SocketsPath, fmt.Sprintf("%d is derived from resources, which apply at the next start", want))
		}
	}
	given = template.Memory != nil && template.Memory.Guest != nil
	if want, known := Memory(template); known && domain.Memory != nil && domain.Memory.Guest != nil &&
		want.Cmp(*domain.Memory.Guest) != 0 {
		switch why := guestObstacle(&want, vmi); {
		case why == "" && !live:
			refuse(GuestPath, staged)
		case why != "":
			refuse(GuestPath, why)
		case given:
			c.Guest = template.Memory.Guest
		default:
			refuse(GuestPath, fmt.Sprintf("%s is derived from resources, which apply at the next start", &want))
		}
	}
	return c
}

const staged = "vmRolloutStrategy is Stage"

func socketsObstacle(want uint32, vmi *v1.VirtualMachineInstance) string {
	sockets, most := Sockets(&vmi.Spec.Domain)
	if t := vmi.Status.CurrentCPUTopology; t != nil {
		sockets = int(t.Sockets)
	}
	switch {
	case int(want) > most:
		return fmt.Sprintf("%d is more than the %d that the guest was started with room for, maxSockets", want, most)
	case int(want) < sockets:
		return fmt.Sprintf("a guest that runs keeps its %d sockets", sockets)
	}
	return ""
}

func guestObstacle(want *resource.Quantity, vmi *v1.VirtualMachineInstance) string {
	domain := &vmi.Spec.Domain
	boot := domain.Memory.Guest
	if s := vmi.Status.Memory; s != nil && s.GuestAtBoot != nil {
		boot = s.GuestAtBoot
	}
	most := boot
	if domain.Memory.MaxGuest != nil && MemoryObstacle(domain) == "" {
		most = domain.Memory.MaxGuest
	}
	switch {
	case want.Cmp(*most) > 0:
		return fmt.Sprintf("%s is more than the %s that the guest was started with room for, maxGuest", want, most)
	case want.Cmp(*boot) < 0:
		return fmt.Sprintf("%s is less than the %s that the guest was started with", want, boot)
	case want.Value()%Alignment(domain) != 0:
		return fmt.Sprintf("%s is not a multiple of %dMi", want, Alignment(domain)>>20)
	}
	return ""
}

// Apply brings a change into a VMI's domain. What it requests, and is limited to, grows by as much.
func (c Change) Apply(domain *v1.DomainSpec) {
	if c.Sockets != nil {
		added := (int64(*c.Sockets) - int64(domain.CPU.Sockets)) * int64(PerSocket(domain))
		domain.CPU.Sockets = *c.Sockets
		add(domain, corev1.ResourceCPU, *resource.NewQuantity(added, resource.DecimalSI))
	}
	if c.Guest != nil {
		added := *resource.NewQuantity(c.Guest.Value()-domain.Memory.Guest.Value(), resource.BinarySI)
		guest := c.Guest.DeepCopy()
		domain.Memory.Guest = &guest
		add(domain, corev1.ResourceMemory, added)
	}
}

func add(domain *v1.DomainSpec, name corev1.ResourceName, added resource.Quantity) {
	for _, list := range []corev1.ResourceList{domain.Resources.Requests, domain.Resources.Limits} {
		if quantity, ok := list[name]; ok {
			quantity.Add(added)
			list[name] = quantity
		}
	}
}

// Fixed returns a template without what Change takes care of: two whose Fixed are equal differ in the guest's size
// only.
func Fixed(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	out := spec.DeepCopy()
	if out.Domain.CPU != nil && out.Domain.CPU.Sockets != 0 {
		out.Domain.CPU.Sockets = 1
	}
	if out.Domain.Memory != nil && out.Domain.Memory.Guest != nil {
		out.Domain.Memory.Guest = &resource.Quantity{}
	}
	return out
}

// Spellings returns all ways of writing a template's size that mean the same guest once defaults are in it, without the
// size itself, as Fixed leaves it: what is not given is one, and the memory that of the resources. The first is Fixed.
func Spellings(spec *v1.VirtualMachineInstanceSpec) []*v1.VirtualMachineInstanceSpec {
	fixed := Fixed(spec)
	var out []*v1.VirtualMachineInstanceSpec
	for _, cpu := range cpuSpellings(fixed.Domain.CPU) {
		for _, memory := range memorySpellings(&fixed.Domain) {
			other := *fixed
			other.Domain.CPU, other.Domain.Memory = cpu, memory
			out = append(out, &other)
		}
	}
	return out
}

// cpuSpellings returns the ways of writing a CPU with as many cores and threads, that which is given first.
func cpuSpellings(given *v1.CPU) []*v1.CPU {
	out := []*v1.CPU{given}
	cpu := v1.CPU{}
	if given != nil {
		cpu = *given
	}
	for i := range 8 {
		one := cpu
		for bit, n := range []*uint32{&one.Sockets, &one.Cores, &one.Threads} {
			if *n <= 1 {
				*n = uint32(i >> bit & 1)
			}
		}
		out = append(out, &one)
	}
	if cpu.Cores <= 1 && cpu.Threads <= 1 {
		cpu.Sockets, cpu.Cores, cpu.Threads = 0, 0, 0
		if equality.Semantic.DeepEqual(cpu, v1.CPU{}) {
			out = append(out, nil)
		}
	}
	return out
}

// memorySpellings returns the ways of writing the memory, that which is given first.
func memorySpellings(domain *v1.DomainSpec) []*v1.Memory {
	out := []*v1.Memory{domain.Memory}
	memory := v1.Memory{}
	if domain.Memory != nil {
		memory = *domain.Memory
	}
	memory.Guest = nil
	if equality.Semantic.DeepEqual(memory, v1.Memory{}) {
		out = append(out, nil)
	}
	bare, guest := memory, memory
	guest.Guest = &resource.Quantity{}
	return append(out, &bare, &guest)
}

// Dedicated reports a guest whose vCPUs have a CPU each.
func Dedicated(domain *v1.DomainSpec) bool {
	return domain.CPU != nil && domain.CPU.DedicatedCPUPlacement
}

// PodObstacle returns why Kubernetes cannot give a pod that runs what its guest needs more of, so that the guest has to
// move to another pod; empty when it can. memory says that the guest needs memory, else it needs CPUs.
func PodObstacle(domain *v1.DomainSpec, memory bool) string {
	const fixed = "CPUs of its own and huge pages are given when a pod starts"
	if Dedicated(domain) {
		return fixed
	}
	if memory && domain.Memory != nil && domain.Memory.Hugepages != nil {
		return fixed
	}
	return ""
}
