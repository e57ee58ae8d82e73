package surface

import (
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// validatePlacement checks what is said of the components' pods: the API server would refuse it in their Deployments
// and DaemonSet, when somebody installs.
func validatePlacement(spec *v1.KubeVirtSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Infra != nil && spec.Infra.Replicas != nil && *spec.Infra.Replicas == 0 {
		errs = append(errs, field.Invalid(path.Child("infra", "replicas"), 0,
			"must be 1 or more; `virtctl uninstall` removes the components"))
	}
	for i, secret := range spec.ImagePullSecrets {
		for _, problem := range validation.IsDNS1123Subdomain(secret.Name) {
			errs = append(errs, field.Invalid(path.Child("imagePullSecrets").Index(i).
				Child("name"), secret.Name, problem))
		}
	}
	for name, component := range map[string]*v1.ComponentConfig{"infra": spec.Infra, "workloads": spec.Workloads} {
		if component == nil || component.NodePlacement == nil {
			continue
		}
		placement, at := component.NodePlacement, path.Child(name, "nodePlacement")
		errs = append(errs, metavalidation.ValidateLabels(placement.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, validateAffinity(placement.Affinity, at.Child("affinity"))...)
		for i := range placement.Tolerations {
			errs = append(errs, validateToleration(placement.Tolerations[i], at.Child("tolerations").Index(i))...)
		}
	}
	return errs
}
