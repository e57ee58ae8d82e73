package frame

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reader reads objects by their Go type for a rule of pkg/vm that knows no client, as instancetype.Reader. It is given
// the client without a cache: what VMs refer to is read when one is made, started or exported, and not worth keeping.
type Reader struct{ client.Reader }

// Read reads an object; namespace is empty for one of the cluster.
func (r Reader) Read(ctx context.Context, namespace, name string, into runtime.Object) error {
	object, ok := into.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", into)
	}
	return r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
}
