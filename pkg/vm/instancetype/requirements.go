package instancetype

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// unmet begins every message about what a preference requires; KubeVirt's, which its clients look for.
const unmet = "failure checking preference requirements: "

// requirements holds an expanded spec against what its preference requires. What the instance type gives is
// reported at spec.instancetype, what the template gives at its own field.
func requirements(resolved Resolved, spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	required := resolved.preference().Requirements
	blame := func(own *field.Path) *field.Path {
		if resolved.Instancetype != nil {
			return field.NewPath("spec", "instancetype")
		}
		return own
	}
	cpuPath := at.Child("domain", "cpu")
	if it := resolved.instancetype(); it != nil {
		errs = append(errs, spreadable(it.CPU.Guest, resolved, blame(cpuPath))...)
	}
	if required == nil {
		return errs
	}
	if required.CPU != nil {
		if has := sizing.VCPUs(&spec.Domain); has < int(required.CPU.Guest) {
			errs = append(errs, field.Invalid(blame(cpuPath), has, fmt.Sprintf(
				unmet+"insufficient CPU resources of %d vCPU: %s requires %d vCPU", has, resolved.Preference,
				required.CPU.Guest)))
		}
	}
	if required.Memory != nil {
		path := blame(at.Child("domain", "memory", "guest"))
		switch memory := spec.Domain.Memory; {
		case memory == nil || memory.Guest == nil:
			errs = append(errs, field.Required(path,
				fmt.Sprintf(unmet+"no memory is set, and %s requires %s", resolved.Preference,
					required.Memory.Guest.String())))
		case memory.Guest.Cmp(required.Memory.Guest) < 0:
			errs = append(errs, field.Invalid(path, memory.Guest.String(), fmt.Sprintf(
				unmet+"insufficient Memory resources of %s: %s requires %s", memory.Guest, resolved.Preference,
				required.Memory.Guest.String())))
		}
	}
	if want := required.Architecture; want != nil && spec.Architecture != "" && spec.Architecture != *want {
		errs = append(errs, field.Invalid(at.Child("architecture"), spec.Architecture, fmt.Sprintf(
			unmet+"%s requires the architecture %s", resolved.Preference, *want)))
	}
	return errs
}

// spreadable checks that vCPUs can be spread as the preference asks, with none left over.
func spreadable(n uint32, resolved Resolved, at *field.Path) field.ErrorList {
	switch preferred(resolved.preference()) {
	case v1beta1.Spread, v1beta1.DeprecatedPreferSpread:
	default:
		return nil
	}
	ratio, across := spread(resolved.preference())
	unit := uint64(max(ratio, 1))
	if across == v1beta1.SpreadAcrossSocketsCoresThreads {
		unit *= threadsPerCore
	}
	if n > 1 && uint64(n)%unit != 0 {
		return field.ErrorList{field.Invalid(at, n, fmt.Sprintf(
			"%d vCPUs of %s cannot be spread by %s across %s: %d must divide them", n, resolved.Instancetype,
			resolved.Preference, across, unit))}
	}
	return nil
}
