package surface

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// validateLimits checks the annotations with the rate limits of disks and interfaces, but for those that are among
// before. spec has its defaults.
func validateLimits(
	annotations, before map[string]string, spec *v1.VirtualMachineInstanceSpec, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		text := annotations[key]
		if had, ok := before[key]; ok && had == text {
			continue
		}
		if err := qos.Check(key, text, spec); err != nil {
			errs = append(errs, field.Invalid(at.Key(key), text, err.Error()))
		}
	}
	return errs
}
