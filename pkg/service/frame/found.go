package frame

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Found reads the object of a name into into and returns it, nil when there is none. namespace is empty for a cluster's
// object.
func Found[T any, P interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, namespace, name string, into P) (P, error) {
	err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %T %s: %w", into, name, err)
	}
	return into, nil
}
