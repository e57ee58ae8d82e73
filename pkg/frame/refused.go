package frame

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Refused reports whether an error says that the API server does not accept a write as it is: a quota, a policy, a
// webhook or validation forbids it. It has to be reported, since trying again helps only when that changes. Of joined
// errors, one is enough.
func Refused(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(joined.Unwrap(), Refused)
	}
	// Webhooks choose their code, mostly Forbidden or BadRequest.
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}
