package client

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// Refused reports whether the server answered, and no: what follows something ends then, and goes on after any other
// error, since an API server may be away for a while.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err)
}
