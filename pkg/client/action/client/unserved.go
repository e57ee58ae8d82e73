package client

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Unserved reports whether the API server does not know the resource that was asked for, rather than an object of it:
// its own answer names no object, and other servers' on the way to it are no Status at all. It is for requests of
// objects, whose 404s name them; see NoPath for any others.
func Unserved(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" || NoPath(err)
}

// NoPath reports whether nobody serves the path that was asked for: the answer is a 404 that is no Status. It is
// stricter than Unserved, for errors of which it is not known what was asked. A subresource or an admission may answer
// 404 with a Status that names no object, and that Status says why; its text must not give way to "not installed".
func NoPath(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details != nil && slices.ContainsFunc(details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}
