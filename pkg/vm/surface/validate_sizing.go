package surface

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// validateSizing checks how far the guest may grow, and what of the node is its alone.
func validateSizing(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	errs := validateMaxSockets(domain, path.Child("cpu"))
	errs = append(errs, validateDedicated(domain, path)...)
	errs = append(errs, validateHugepages(domain, path.Child("memory"))...)
	errs = append(errs, validateMaxGuest(domain, path.Child("memory"))...)
	if m := domain.Memory; m != nil && m.ReservedOverhead != nil {
		if added := m.ReservedOverhead.AddedOverhead; added != nil && added.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Child("memory", "reservedOverhead", "addedOverhead"), added.String(),
				fmt.Sprintf("%s must not be negative", added.String())))
		}
	}
	return errs
}

func validateMaxSockets(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	cpu := domain.CPU
	if cpu == nil || cpu.MaxSockets == 0 {
		return nil
	}
	if cpu.Sockets > cpu.MaxSockets {
		return field.ErrorList{field.Invalid(path.Child("sockets"), cpu.Sockets, fmt.Sprintf(
			"%d is more than maxSockets, %d; raise maxSockets or lower it", cpu.Sockets, cpu.MaxSockets))}
	}
	per := int64(sizing.PerSocket(domain))
	if most := int64(cpu.MaxSockets) * per; most > sizing.MachineVCPUs && cpu.MaxSockets > cpu.Sockets {
		return field.ErrorList{field.Invalid(path.Child("maxSockets"), cpu.MaxSockets, fmt.Sprintf(
			"%d sockets × %d cores × %d threads would be too many vCPUs; the most is %d", cpu.MaxSockets, cpu.Cores,
			cpu.Threads, sizing.MachineVCPUs))}
	}
	return nil
}

// validateDedicated holds KubeVirt's rules for CPUs of one's own and what builds on them.
func validateDedicated(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	cpu := domain.CPU
	if cpu == nil {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("cpu")
	if cpu.DedicatedCPUPlacement {
		errs = append(errs, validateWholeCPUs(domain, path.Child("resources"))...)
	} else {
		for _, needy := range []struct {
			name string
			set  bool
		}{
			{"isolateEmulatorThread", cpu.IsolateEmulatorThread},
			{"numa", cpu.NUMA != nil && cpu.NUMA.GuestMappingPassthrough != nil},
			{"realtime", cpu.Realtime != nil},
		} {
			if needy.set {
				errs = append(errs, field.Forbidden(at.Child(needy.name), "needs dedicatedCpuPlacement: true"))
			}
		}
	}
	pages := domain.Memory != nil && domain.Memory.Hugepages != nil
	mapped := cpu.NUMA != nil && cpu.NUMA.GuestMappingPassthrough != nil
	if mapped && !pages {
		errs = append(errs, field.Forbidden(at.Child("numa", "guestMappingPassthrough"), "needs memory.hugepages"))
	}
	if cpu.Realtime != nil && !mapped {
		errs = append(errs, field.Forbidden(at.Child("realtime"),
			"needs numa.guestMappingPassthrough: {}, and with it memory.hugepages"))
	}
	if cpu.Realtime != nil {
		if _, err := sizing.Realtime(domain); err != nil {
			errs = append(errs, field.Invalid(at.Child("realtime", "mask"), cpu.Realtime.Mask, err.Error()+
				"; use numbers, ranges and numbers to leave out, such as 0-3,^1, or leave it out for all"))
		}
	}
	if mapped && cpu.MaxSockets > cpu.Sockets {
		errs = append(errs,
			field.Forbidden(at.Child("maxSockets"), "cannot be more than sockets with numa.guestMappingPassthrough"))
	}
	return errs
}

func validateWholeCPUs(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sockets, _ := sizing.Sockets(domain)
	vcpus := int64(sockets * sizing.PerSocket(domain))
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"requests", domain.Resources.Requests}, {"limits", domain.Resources.Limits}} {
		if q, ok := list.of[corev1.ResourceCPU]; ok && q.Cmp(*resource.NewQuantity(vcpus, resource.DecimalSI)) != 0 {
			errs = append(errs, field.Invalid(path.Child(list.name, "cpu"), q.String(), fmt.Sprintf(
				"%s is not the number of vCPUs, %d, which dedicatedCpuPlacement gives each a CPU; leave it out",
				q.String(), vcpus)))
		}
	}
	request, requested := domain.Resources.Requests[corev1.ResourceMemory]
	limit, limited := domain.Resources.Limits[corev1.ResourceMemory]
	if requested && limited && request.Cmp(limit) != 0 {
		errs = append(errs, field.Invalid(path.Child("requests", "memory"), request.String(), fmt.Sprintf(
			"%s is not the limit of %s, which dedicatedCpuPlacement needs; leave one of them out", request.String(),
			limit.String())))
	}
	return errs
}

// leastPage is the size of a small page, bytes, of which all others are multiples.
const leastPage = 4 << 10

func validateHugepages(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	if domain.Memory == nil || domain.Memory.Hugepages == nil {
		return nil
	}
	size := domain.Memory.Hugepages.PageSize
	at := path.Child("hugepages", "pageSize")
	page := sizing.PageSize(domain)
	switch guest := domain.Memory.Guest; {
	case size == "":
		return field.ErrorList{field.Required(at, "is not set; use a size of the nodes' huge pages, "+
			alternatives(pageSizes))}
	case page < leastPage || page&(leastPage-1) != 0:
		return field.ErrorList{field.Invalid(at, size, fmt.Sprintf(
			"%q is no size of pages; use one of the nodes' huge pages, %s", size, alternatives(pageSizes)))}
	case guest != nil && guest.Value()%page != 0:
		return field.ErrorList{field.Invalid(path.Child("guest"), guest.String(), fmt.Sprintf(
			"%s is not a multiple of the page size, %s; round it, or use smaller pages", guest.String(), size))}
	}
	return nil
}

func validateMaxGuest(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	if domain.Memory == nil || domain.Memory.MaxGuest == nil || domain.Memory.Guest == nil {
		return nil
	}
	guest, most, at := domain.Memory.Guest, domain.Memory.MaxGuest, path.Child("maxGuest")
	switch align := sizing.Alignment(domain); {
	case guest.Cmp(*most) > 0:
		return field.ErrorList{field.Invalid(path.Child("guest"), guest.String(), fmt.Sprintf(
			"%s is more than maxGuest, %s; raise maxGuest or lower it", guest.String(), most.String()))}
	case guest.Cmp(*most) == 0:
		return nil
	case sizing.MemoryObstacle(domain) != "":
		return field.ErrorList{
			field.Forbidden(at, sizing.MemoryObstacle(domain)+"; change that, or leave maxGuest out"),
		}
	case most.Value()%align != 0:
		return field.ErrorList{
			field.Invalid(at, most.String(), fmt.Sprintf("%s is not a multiple of %dMi", most.String(), align>>20)),
		}
	case most.CmpInt64(sizing.MaxMemory) > 0:
		return field.ErrorList{field.Invalid(at, most.String(),
			fmt.Sprintf("%s is more than any machine has; the most is 1Ei", most.String()))}
	}
	return nil
}
