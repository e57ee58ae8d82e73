package client

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Refused reports whether the server answered, and no: what follows something ends then, and goes on after any other
// error, since an API server may be away for a while.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err)
}

// Unanswered reports whether err leaves open what the server did: it did not answer, or not in time, so that what was
// asked for may have been done.
func Unanswered(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// Passing reports whether err may go away by itself: anything but the server's own refusal.
func Passing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}
