package surface

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// validateDeviceAnnotations checks the annotations about disks and interfaces, but for those that are among before:
// their rate limits, their addresses, and by which the guest sends as others. spec has its defaults. Whether the
// namespace allows the latter is asked on the node, where it is done.
func validateDeviceAnnotations(
	namespace string, annotations, before map[string]string, spec *v1.VirtualMachineInstanceSpec, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		text := annotations[key]
		if had, ok := before[key]; ok && had == text {
			continue
		}
		check := qos.Check
		switch key {
		case network.AllowSpoofing:
			check = network.CheckSpoofing
		case ipaddress.Wish:
			check = func(key, value string, spec *v1.VirtualMachineInstanceSpec) error {
				return ipaddress.CheckWish(namespace, key, value, spec)
			}
		}
		if err := check(key, text, spec); err != nil {
			errs = append(errs, field.Invalid(at.Key(key), text, err.Error()))
		}
	}
	return errs
}
