package frame

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Index makes the cache index objects like object, under the given name, by the keys that keys returns for each; empty
// keys are left out. what names, for errors, what is indexed, such as "VMIs by node".
func Index[T client.Object](
	ctx context.Context, indexer client.FieldIndexer, object T, name, what string, keys func(T) []string,
) error {
	err := indexer.IndexField(ctx, object, name, func(object client.Object) []string {
		return slices.DeleteFunc(keys(object.(T)), func(key string) bool { return key == "" })
	})
	if err != nil {
		return fmt.Errorf("index %s: %w", what, err)
	}
	return nil
}
