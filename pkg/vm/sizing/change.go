package sizing

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// The fields whose change reaches a guest that runs, below spec.template.spec.
const (
	SocketsPath = "domain.cpu.sockets"
	GuestPath   = "domain.memory.guest"
)

// Change is what the changed size in a VM's template means for its guest, which runs. The zero Change is none.
type Change struct {
	// Sockets and Guest are what the instance is to have from now on; nil leaves it.
	Sockets *uint32
	Guest   *resource.Quantity
	// Refused says by path, below spec.template.spec, why the guest can have it only when it is started again.
	Refused map[string]string
}

// Any reports whether there is anything to change.
func (c Change) Any() bool { return c.Sockets != nil || c.Guest != nil }

// Of compares the template that a VM has now, its instance type and preference written into it, with its instance. live
// is whether the installation changes guests that run.
func Of(template *v1.DomainSpec, vmi *v1.VirtualMachineInstance, live bool) Change {
	var c Change
	refuse := func(path, why string) {
		if c.Refused == nil {
			c.Refused = map[string]string{}
		}
		c.Refused[path] = why
	}
	domain := &vmi.Spec.Domain
	if t := template.CPU; t != nil && t.Sockets != 0 && domain.CPU != nil && t.Sockets != domain.CPU.Sockets {
		if why := socketsObstacle(t.Sockets, vmi); !live {
			refuse(SocketsPath, staged)
		} else if why != "" {
			refuse(SocketsPath, why)
		} else {
			c.Sockets = &t.Sockets
		}
	}
	if m := template.Memory; m != nil && m.Guest != nil && domain.Memory != nil && domain.Memory.Guest != nil &&
		m.Guest.Cmp(*domain.Memory.Guest) != 0 {
		if why := guestObstacle(m.Guest, vmi); !live {
			refuse(GuestPath, staged)
		} else if why != "" {
			refuse(GuestPath, why)
		} else {
			c.Guest = m.Guest
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

// Apply brings a change into an instance's domain. What it requests, and is limited to, grows by as much.
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

// Fixed is a template without what Change takes care of: two that are equal so make the same guest but for its size.
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
