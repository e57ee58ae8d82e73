package instancetype

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"kubevirt.io/api/instancetype/v1beta1"
)

// Validate checks an instance type by itself. As in KubeVirt it may leave the vCPUs, the memory or both to the VM, as
// 0. The result in a VM is checked with the VM: a type may have fields that virtkit does not support, and no VM can
// then use it.
func Validate(spec *v1beta1.VirtualMachineInstancetypeSpec) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if most := spec.CPU.MaxSockets; most != nil && *most < spec.CPU.Guest {
		errs = append(errs, field.Invalid(at.Child("cpu", "maxSockets"), *most,
			fmt.Sprintf("%d is less than cpu.guest, %d", *most, spec.CPU.Guest)))
	}
	memory := at.Child("memory")
	guest := spec.Memory.Guest
	if guest.Sign() < 0 {
		errs = append(errs, field.Invalid(memory.Child("guest"), guest.String(),
			"must not be negative; it is the guest's memory, such as 1Gi"))
	}
	if most := spec.Memory.MaxGuest; most != nil && most.Cmp(guest) < 0 {
		errs = append(errs, field.Invalid(memory.Child("maxGuest"), most.String(),
			fmt.Sprintf("%s is less than memory.guest, %s", most, guest.String())))
	}
	percent := spec.Memory.OvercommitPercent
	switch {
	case percent < 0 || percent > 99:
		errs = append(errs, field.Invalid(memory.Child("overcommitPercent"), percent,
			fmt.Sprintf("%d is not a percentage from 0 to 99", percent)))
	case percent > 0 && spec.Memory.Hugepages != nil:
		errs = append(errs, field.Forbidden(memory.Child("overcommitPercent"),
			"cannot be set together with hugepages, which are not overcommitted"))
	}
	return errs
}

var topologies = []v1beta1.PreferredCPUTopology{
	v1beta1.Sockets, v1beta1.Cores, v1beta1.Threads, v1beta1.Spread, v1beta1.Any,
	v1beta1.DeprecatedPreferSockets, v1beta1.DeprecatedPreferCores, v1beta1.DeprecatedPreferThreads,
	v1beta1.DeprecatedPreferSpread, v1beta1.DeprecatedPreferAny,
}

var acrosses = []v1beta1.SpreadAcross{
	v1beta1.SpreadAcrossSocketsCores, v1beta1.SpreadAcrossCoresThreads,
	v1beta1.SpreadAcrossSocketsCoresThreads,
}

// Topologies returns the names of the CPU topologies that a preference may ask for, the deprecated ones last.
func Topologies() []string {
	out := make([]string, len(topologies))
	for i, t := range topologies {
		out[i] = string(t)
	}
	return out
}

// ValidatePreference checks a preference by itself.
func ValidatePreference(spec *v1beta1.VirtualMachinePreferenceSpec) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if cpu := spec.CPU; cpu != nil {
		if t := cpu.PreferredCPUTopology; t != nil && !slices.Contains(topologies, *t) {
			errs = append(errs, field.NotSupported(at.Child("cpu", "preferredCPUTopology"), *t, topologies))
		}
		if options := cpu.SpreadOptions; options != nil {
			path := at.Child("cpu", "spreadOptions")
			if options.Across != nil && !slices.Contains(acrosses, *options.Across) {
				errs = append(errs, field.NotSupported(path.Child("across"), *options.Across, acrosses))
			}
			if options.Ratio != nil && *options.Ratio == 0 {
				errs = append(errs, field.Invalid(path.Child("ratio"), 0, "must be 1 or more"))
			}
		}
	}
	if firmware := spec.Firmware; firmware != nil {
		efi := firmware.PreferredEfi != nil || on(firmware.DeprecatedPreferredUseEfi)
		if efi && on(firmware.PreferredUseBios) {
			errs = append(errs, field.Forbidden(at.Child("firmware", "preferredUseBios"),
				"cannot be set together with UEFI; remove one"))
		}
	}
	if required := spec.Requirements; required != nil {
		path := at.Child("requirements")
		if required.CPU != nil && required.CPU.Guest == 0 {
			errs = append(errs, field.Invalid(path.Child("cpu", "guest"), 0, "must be 1 or more"))
		}
		if required.Memory != nil && required.Memory.Guest.Sign() <= 0 {
			errs = append(errs,
				field.Invalid(path.Child("memory", "guest"), required.Memory.Guest.String(), "must be more than 0"))
		}
	}
	return errs
}
