package certs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/virtkit/virtkit/pkg/names"
)

// authorities returns the CA certificates to trust, PEM; nil before they are known.
func (r *requested) authorities() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bundle
}

// followBundle follows the authorities to trust until the context ends.
func (r *requested) followBundle(ctx context.Context) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, names.CABundle)
	listWatch := Selected(r.Client.CoreV1().ConfigMaps(r.Namespace), selector)
	take := func(obj any) {
		configMap, ok := obj.(*corev1.ConfigMap)
		if !ok || configMap.Name != names.CABundle || configMap.Data[names.CABundleKey] == "" {
			return // the last one stays; virt-controller repairs it
		}
		r.mu.Lock()
		r.bundle = []byte(configMap.Data[names.CABundleKey])
		r.mu.Unlock()
		select {
		case r.look <- struct{}{}:
		default: // There will be a look anyway.
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(listWatch, r.Client),
		ObjectType:    &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    take,
			UpdateFunc: func(_, obj any) { take(obj) },
		},
	})
	informer.RunWithContext(ctx)
}
