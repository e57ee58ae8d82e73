package surface

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// validatePods checks what the configuration says about guests' pods and their nodes.
func validatePods(configuration *v1.KubeVirtConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := configuration.VirtualMachineInstancesPerNode; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(path.Child("virtualMachineInstancesPerNode"), *n,
			"must be 1 or more; kubectl cordon keeps guests from a node"))
	}
	if selector := configuration.AutoCPULimitNamespaceLabelSelector; selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(selector,
			metav1validation.LabelSelectorValidationOptions{}, path.Child("autoCPULimitNamespaceLabelSelector"))...)
	}
	seen := map[v1.SupportContainerType]bool{}
	for i := range configuration.SupportContainerResources {
		given, at := &configuration.SupportContainerResources[i], path.Child("supportContainerResources").Index(i)
		if seen[given.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), given.Type))
		}
		seen[given.Type] = true
		for name, request := range given.Resources.Requests {
			here := at.Child("resources", "requests").Key(string(name))
			if request.Sign() < 0 {
				errs = append(errs, field.Invalid(here, request.String(), "must not be negative"))
			}
			if limit, ok := given.Resources.Limits[name]; ok && request.Cmp(limit) > 0 {
				errs = append(errs, field.Invalid(here, request.String(),
					fmt.Sprintf("must not be more than the limit, %s", limit.String())))
			}
		}
		for _, list := range []corev1.ResourceList{given.Resources.Requests, given.Resources.Limits} {
			for name := range list {
				if name != corev1.ResourceCPU && name != corev1.ResourceMemory &&
					name != corev1.ResourceEphemeralStorage {
					errs = append(errs, field.Invalid(at.Child("resources"), name,
						fmt.Sprintf("%q is not given to such a container; use cpu, memory or ephemeral-storage", name)))
				}
			}
		}
	}
	return errs
}
