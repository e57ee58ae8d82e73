package virtapi

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// validateExport checks a VirtualMachineExport as KubeVirt does, and what would only fail later.
func (a *admission) validateExport(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	export, old, err := objects[v1beta1.VirtualMachineExport](request)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	switch {
	case old == nil:
		errs = validateExported(&export.Spec.Source, specField.Child("source"))
		if ttl := export.Spec.TTLDuration; ttl != nil && ttl.Duration <= 0 {
			errs = append(errs, field.Invalid(specField.Child("ttlDuration"), ttl.Duration.String(),
				"must be more than 0; leave it out for two hours"))
		}
		if token := export.Spec.TokenSecretRef; token != nil && *token != "" {
			errs = append(errs, validateName(*token, specField.Child("tokenSecretRef"))...)
		}
	case !equality.Semantic.DeepEqual(export.Spec, old.Spec):
		errs = immutable()
	}
	return verdict(request.Kind.Kind, export.Name, errs), nil
}

// validateExported checks the source of an export; the texts are KubeVirt's.
func validateExported(source *corev1.TypedLocalObjectReference, at *field.Path) (errs field.ErrorList) {
	kinds := map[string]struct{ group, name, wrong string }{
		exports.KindVM: {
			v1.GroupVersion.Group, "Virtual Machine", "VM API group must be " + v1.GroupVersion.Group,
		},
		exports.KindSnapshot: {
			snapshotv1beta1.SchemeGroupVersion.Group, "VMSnapshot",
			"VMSnapshot API group must be " + snapshotv1beta1.SchemeGroupVersion.Group,
		},
		exports.KindClaim: {"", "PVC", "PVC API group must be missing or blank"},
	}
	kind, ok := kinds[source.Kind]
	if !ok {
		return field.ErrorList{field.Invalid(at.Child("kind"), source.Kind, "invalid kind")}
	}
	if source.Name == "" {
		errs = append(errs, field.Invalid(at.Child("name"), source.Name,
			fmt.Sprintf("%s name must not be empty", kind.name)))
	} else {
		errs = validateName(source.Name, at.Child("name"))
	}
	if exports.SourceKind(source) == "" {
		group := ""
		if source.APIGroup != nil {
			group = *source.APIGroup
		}
		errs = append(errs, field.Invalid(at.Child("APIGroup"), group, kind.wrong))
	}
	return errs
}
