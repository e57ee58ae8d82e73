package exportcontroller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/virtkit/virtkit/pkg/controller/optional"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
)

const (
	// rootConfigMap is the ConfigMap in each namespace with the authorities of the cluster, on OpenShift those of its
	// routers among them.
	rootConfigMap, rootKey = "kube-root-ca.crt", "ca.crt"
	// ingressAuthority is the key by which cert-manager says who signed the certificate of a Secret.
	ingressAuthority = "ca.crt"
)

// Entrances finds what leads to exports from outside of the cluster: it is a *Ways.
type Entrances interface {
	// Host returns the host of the entrance, "" when there is none. The error is frame.ErrStale while nobody knows.
	Host(ctx context.Context) (string, error)
	// Find returns the entrance with its certificate, nil for none. The error is frame.ErrStale while nobody knows.
	Find(ctx context.Context, now time.Time) (*Entrance, error)
	// Follow has a controller work on the users of each Route that changes.
	Follow(c controller.Controller, users handler.MapFunc)
}

// routes is OpenShift's kind of entrance. An APIService says that it is served: OpenShift has it from a server of its
// own, smaller distributions by a definition, for which Kubernetes makes an APIService.
var routes = schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}

// Routes returns the kind Route.
func Routes() optional.Kind {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(routes)
	return optional.Kind{Version: routes.GroupVersion(), Resource: "routes", Object: object, Aggregated: true}
}

// RouteCache returns a cache of the Routes in virtkit's namespace, which the manager runs: its own cache cannot be told
// of a kind that the cluster may lack.
func RouteCache(mgr ctrl.Manager) (cache.Cache, error) {
	made, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		DefaultNamespaces: map[string]cache.Config{names.Namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of Routes: %w", err)
	}
	if err := mgr.Add(made); err != nil {
		return nil, fmt.Errorf("add the cache of Routes: %w", err)
	}
	return made, nil
}

// RouteAccess has the methods of optional.Access that Ways calls.
type RouteAccess interface {
	List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error
	// Settled reports whether the list is that of the cluster. It is not in the moment after virt-controller has begun.
	Settled(ctx context.Context) (bool, error)
	Follow(c controller.Controller, users handler.MapFunc)
}

// Ways are the Ingresses and Routes in virtkit's namespace.
type Ways struct {
	// Client has Ingresses of virtkit's namespace in its cache.
	Client client.Reader
	// Live reads past it: the certificates.
	Live client.Reader
	// Routes reads Routes, if the cluster has them.
	Routes RouteAccess
}

// Follow implements Entrances.
func (w *Ways) Follow(c controller.Controller, users handler.MapFunc) { w.Routes.Follow(c, users) }

// Host implements Entrances.
func (w *Ways) Host(ctx context.Context) (string, error) {
	found, err := w.choose(ctx)
	return found.host, err
}

func (w *Ways) choose(ctx context.Context) (way, error) {
	var ingresses networkingv1.IngressList
	if err := w.Client.List(ctx, &ingresses, client.InNamespace(names.Namespace)); err != nil {
		return way{}, fmt.Errorf("list Ingresses: %w", err)
	}
	if found := choose(ingresses.Items, nil); found.host != "" {
		return found, nil // whatever Routes there are
	}
	settled, err := w.Routes.Settled(ctx)
	switch {
	case err != nil:
		return way{}, err
	case !settled:
		return way{}, frame.ErrStale
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(routes.GroupVersion().WithKind(routes.Kind + "List"))
	if err := w.Routes.List(ctx, &list, client.InNamespace(names.Namespace)); err != nil {
		return way{}, err
	}
	return choose(nil, list.Items), nil
}

// Find implements Entrances. It reads a Secret that an Ingress in virtkit's namespace names, and takes certificates of
// it only. A certificate that is not there yet is not waited for.
func (w *Ways) Find(ctx context.Context, now time.Time) (*Entrance, error) {
	found, err := w.choose(ctx)
	if found.host == "" || err != nil {
		return nil, err
	}
	bundle := []byte(found.bundle)
	switch {
	case found.secret != "":
		secret, err := frame.Found(ctx, w.Live, names.Namespace, found.secret, &corev1.Secret{})
		if err != nil {
			return nil, err
		}
		if secret != nil && secret.Type == corev1.SecretTypeTLS {
			bundle = slices.Concat(secret.Data[corev1.TLSCertKey], []byte("\n"), secret.Data[ingressAuthority])
		}
	case found.route:
		authorities, err := frame.Found(ctx, w.Live, names.Namespace, rootConfigMap, &corev1.ConfigMap{})
		if err != nil {
			return nil, err
		}
		if authorities != nil {
			bundle = append(bundle, "\n"+authorities.Data[rootKey]...)
		}
	}
	out := &Entrance{Host: found.host}
	if out.Certificate, err = certificateFor(found.host, bundle, now); err != nil {
		out.Trouble = err.Error()
	}
	return out, nil
}
