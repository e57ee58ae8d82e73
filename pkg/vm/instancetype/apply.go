package instancetype

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// applyInstancetype writes an instance type into a spec and reports the fields that the spec sets itself. preference
// says how the vCPUs are laid out; it may be nil.
func applyInstancetype(it *v1beta1.VirtualMachineInstancetypeSpec, preference *v1beta1.VirtualMachinePreferenceSpec,
	spec *v1.VirtualMachineInstanceSpec, at *field.Path, conflict func(*field.Path),
) {
	domain := at.Child("domain")
	applyCPU(it, preference, &spec.Domain, domain, conflict)
	applyMemory(it, &spec.Domain, domain, conflict)
	for _, key := range slices.Sorted(maps.Keys(it.NodeSelector)) {
		value := it.NodeSelector[key]
		if own, ok := spec.NodeSelector[key]; ok && own != value {
			conflict(at.Child("nodeSelector").Key(key))
			continue
		}
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		spec.NodeSelector[key] = value
	}
	if it.SchedulerName != "" {
		if spec.SchedulerName != "" {
			conflict(at.Child("schedulerName"))
		}
		spec.SchedulerName = it.SchedulerName
	}
	if len(it.GPUs) > 0 {
		if len(spec.Domain.Devices.GPUs) > 0 {
			conflict(domain.Child("devices", "gpus"))
		}
		spec.Domain.Devices.GPUs = slices.Clone(it.GPUs)
	}
	if len(it.HostDevices) > 0 {
		if len(spec.Domain.Devices.HostDevices) > 0 {
			conflict(domain.Child("devices", "hostDevices"))
		}
		spec.Domain.Devices.HostDevices = slices.Clone(it.HostDevices)
	}
	if it.IOThreadsPolicy != nil {
		if spec.Domain.IOThreadsPolicy != nil {
			conflict(domain.Child("ioThreadsPolicy"))
		}
		spec.Domain.IOThreadsPolicy = clone(it.IOThreadsPolicy)
	}
	if it.IOThreads != nil {
		if spec.Domain.IOThreads != nil {
			conflict(domain.Child("ioThreads"))
		}
		spec.Domain.IOThreads = it.IOThreads.DeepCopy()
	}
	if it.LaunchSecurity != nil {
		if spec.Domain.LaunchSecurity != nil {
			conflict(domain.Child("launchSecurity"))
		}
		spec.Domain.LaunchSecurity = it.LaunchSecurity.DeepCopy()
	}
}

func applyCPU(
	it *v1beta1.VirtualMachineInstancetypeSpec, preference *v1beta1.VirtualMachinePreferenceSpec, domain *v1.DomainSpec,
	at *field.Path, conflict func(*field.Path),
) {
	if domain.CPU == nil {
		domain.CPU = &v1.CPU{}
	}
	cpu, path := domain.CPU, at.Child("cpu")
	resourceConflicts(&domain.Resources, corev1.ResourceCPU, at, conflict)
	for _, own := range []struct {
		name string
		set  bool
	}{
		{"sockets", cpu.Sockets != 0},
		{"cores", cpu.Cores != 0},
		{"threads", cpu.Threads != 0},
		{"maxSockets", cpu.MaxSockets != 0 && it.CPU.MaxSockets != nil},
		{"model", cpu.Model != "" && it.CPU.Model != nil},
		{"dedicatedCpuPlacement", cpu.DedicatedCPUPlacement && it.CPU.DedicatedCPUPlacement != nil},
		{"isolateEmulatorThread", cpu.IsolateEmulatorThread && it.CPU.IsolateEmulatorThread != nil},
		{"numa", cpu.NUMA != nil && it.CPU.NUMA != nil},
		{"realtime", cpu.Realtime != nil && it.CPU.Realtime != nil},
	} {
		if own.set {
			conflict(path.Child(own.name))
		}
	}
	if it.CPU.Guest > 0 {
		cpu.Sockets, cpu.Cores, cpu.Threads = topology(it.CPU.Guest, preference)
	}
	replace(&cpu.MaxSockets, it.CPU.MaxSockets)
	replace(&cpu.Model, it.CPU.Model)
	replace(&cpu.DedicatedCPUPlacement, it.CPU.DedicatedCPUPlacement)
	replace(&cpu.IsolateEmulatorThread, it.CPU.IsolateEmulatorThread)
	if it.CPU.NUMA != nil {
		cpu.NUMA = it.CPU.NUMA.DeepCopy()
	}
	if it.CPU.Realtime != nil {
		cpu.Realtime = it.CPU.Realtime.DeepCopy()
	}
}

func applyMemory(
	it *v1beta1.VirtualMachineInstancetypeSpec, domain *v1.DomainSpec, at *field.Path, conflict func(*field.Path),
) {
	if domain.Memory == nil {
		domain.Memory = &v1.Memory{}
	}
	memory, path := domain.Memory, at.Child("memory")
	resourceConflicts(&domain.Resources, corev1.ResourceMemory, at, conflict)
	if memory.Guest != nil {
		conflict(path.Child("guest"))
	}
	if memory.Hugepages != nil && it.Memory.Hugepages != nil {
		conflict(path.Child("hugepages"))
	}
	if memory.MaxGuest != nil && it.Memory.MaxGuest != nil {
		conflict(path.Child("maxGuest"))
	}
	guest := it.Memory.Guest.DeepCopy()
	if !guest.IsZero() {
		memory.Guest = &guest
	}
	if it.Memory.Hugepages != nil {
		memory.Hugepages = it.Memory.Hugepages.DeepCopy()
	}
	if it.Memory.MaxGuest != nil {
		most := it.Memory.MaxGuest.DeepCopy()
		memory.MaxGuest = &most
	}
	if percent := int64(it.Memory.OvercommitPercent); percent > 0 {
		if domain.Resources.Requests == nil {
			domain.Resources.Requests = corev1.ResourceList{}
		}
		// In hundredths first, so that the product of a huge quantity stays within 64 bits.
		request := guest.Value() / 100 * (100 - percent)
		domain.Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(request, guest.Format)
	}
}

// resourceConflicts reports a request and a limit, which determine the size of the guest as much as the type does.
func resourceConflicts(
	resources *v1.ResourceRequirements, name corev1.ResourceName, at *field.Path, conflict func(*field.Path),
) {
	if _, ok := resources.Requests[name]; ok {
		conflict(at.Child("resources", "requests", string(name)))
	}
	if _, ok := resources.Limits[name]; ok {
		conflict(at.Child("resources", "limits", string(name)))
	}
}

// defaultRatio is the number of cores of a socket, or threads of a core, when a preference spreads without saying.
const defaultRatio = 2

// spread returns how a preference spreads vCPUs.
func spread(preference *v1beta1.VirtualMachinePreferenceSpec) (ratio uint32, across v1beta1.SpreadAcross) {
	ratio, across = defaultRatio, v1beta1.SpreadAcrossSocketsCores
	if preference.PreferSpreadSocketToCoreRatio != 0 {
		ratio = preference.PreferSpreadSocketToCoreRatio
	}
	if preference.CPU == nil || preference.CPU.SpreadOptions == nil {
		return ratio, across
	}
	if own := preference.CPU.SpreadOptions.Ratio; own != nil {
		ratio = *own
	}
	if own := preference.CPU.SpreadOptions.Across; own != nil {
		across = *own
	}
	return ratio, across
}

// preferred returns the topology that a preference asks for: sockets, which guests license and hotplug best, unless it
// says otherwise.
func preferred(preference *v1beta1.VirtualMachinePreferenceSpec) v1beta1.PreferredCPUTopology {
	if preference == nil || preference.CPU == nil || preference.CPU.PreferredCPUTopology == nil {
		return v1beta1.Sockets
	}
	return *preference.CPU.PreferredCPUTopology
}

// threadsPerCore is the number of threads of a core when vCPUs are spread over threads too; KubeVirt's.
const threadsPerCore = 2

// topology lays vCPUs out.
func topology(vcpus uint32, preference *v1beta1.VirtualMachinePreferenceSpec) (sockets, cores, threads uint32) {
	if vcpus <= 1 {
		return 1, 1, 1
	}
	switch preferred(preference) {
	case v1beta1.Cores, v1beta1.DeprecatedPreferCores:
		return 1, vcpus, 1
	case v1beta1.Threads, v1beta1.DeprecatedPreferThreads:
		return 1, 1, vcpus
	case v1beta1.Spread, v1beta1.DeprecatedPreferSpread:
		ratio, across := spread(preference)
		ratio = max(ratio, 1)
		switch across {
		case v1beta1.SpreadAcrossCoresThreads:
			return 1, vcpus / ratio, ratio
		case v1beta1.SpreadAcrossSocketsCoresThreads:
			return vcpus / threadsPerCore / ratio, ratio, threadsPerCore
		default:
			return vcpus / ratio, ratio, 1
		}
	}
	return vcpus, 1, 1
}

func replace[T any](target, value *T) {
	if value != nil {
		*target = *value
	}
}

func clone[T any](value *T) *T {
	if value == nil {
		return nil
	}
	out := *value
	return &out
}
