package virtapi

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// known has a webhook refuse fields below spec that the kind T does not have, which the definitions of the resources
// keep for it: nothing that a user writes is dropped without a word. An update may leave such a field where it was, so
// that objects of another version of virtkit can still be labelled, changed and deleted.
func known[T any](admit webhook) webhook {
	return func(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		before := surface.UnknownFields[T](request.OldObject.Raw)
		var errs field.ErrorList
		for _, name := range surface.UnknownFields[T](request.Object.Raw) {
			if !slices.Contains(before, name) {
				errs = append(errs, field.Forbidden(field.NewPath(name),
					"is no field that this version of virtkit knows; correct its name, or remove it"))
			}
		}
		if len(errs) > 0 {
			return verdict(request.Kind.Kind, nameIn(request), errs), nil
		}
		return admit(ctx, request)
	}
}

// nameIn returns the name of the object of a request, also of one that is to be given a name.
func nameIn(request *admissionv1.AdmissionRequest) string {
	var object metav1.PartialObjectMetadata
	if kjson.UnmarshalCaseSensitivePreserveInts(request.Object.Raw, &object) != nil || object.Name == "" {
		return request.Name
	}
	return object.Name
}
