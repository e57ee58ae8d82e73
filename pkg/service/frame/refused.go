package frame

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/names"
)

// Refused reports whether an error says that the API server does not accept a write as it is: a quota, a policy, a
// webhook or validation forbids it. It has to be reported, since trying again helps only when that changes. Of joined
// errors, one is enough.
func Refused(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(joined.Unwrap(), Refused)
	}
	// Webhooks choose their code, mostly Forbidden or BadRequest.
	return apierrors.IsForbidden(err) || notAccepted(err)
}

// Malformed reports whether an error says that the API server does not accept an object itself, whoever writes it and
// whenever: its validation or a webhook's does not. That ends what the object is for. A quota or a policy is Forbidden,
// and a feature gate may be opened.
func Malformed(err error) bool { return notAccepted(err) && !gateClosed(err) }

func notAccepted(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// gateClosed reports virt-api's refusal of what a feature gate would allow.
func gateClosed(err error) bool { return apierrors.ReasonForError(err) == names.ReasonGateClosed }

// Ending reports whether an error says that nothing is created any more in a namespace that is being deleted.
func Ending(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }
