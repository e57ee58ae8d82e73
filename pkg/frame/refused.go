package frame

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Refused reports whether an error says that the API server does not take what was to be written as it is: a quota, a
// policy, a webhook or validation is against it. Somebody has to be told, for to try again helps only when that
// changes. Of errors that are joined one is enough.
func Refused(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(joined.Unwrap(), Refused)
	}
	// Webhooks choose their code, mostly Forbidden or BadRequest.
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}
