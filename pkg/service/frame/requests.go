package frame

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Requests asks for a look at each of the items that match has; a nil match has all.
func Requests[T any, P interface {
	*T
	client.Object
}](items []T, match func(P) bool) []reconcile.Request {
	var out []reconcile.Request
	for i := range items {
		if item := P(&items[i]); match == nil || match(item) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(item)})
		}
	}
	return out
}

// RequestOf asks for a look at the object in a namespace that an owner reference names; at none where owner is nil.
func RequestOf(namespace string, owner *metav1.OwnerReference) []reconcile.Request {
	if owner == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: owner.Name}}}
}
