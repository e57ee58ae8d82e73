// Package certificates rotates the certificates of an installation: the authority and each component's certificate in
// Secrets, the bundle of trusted authorities in a ConfigMap, and that bundle in the APIServices and webhook
// configurations that lead to virt-api. certs.Rotate decides what to do; this package reads and writes. When nothing is
// due, it writes nothing.
//
// It also signs the requests of the nodes' virt-handlers (signer.go).
package certificates

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

// retry is the delay after a failure.
const retry = 2 * time.Second

// leaves are the certificates that are kept, by the name of their Secret.
var leaves = map[string]certs.Leaf{
	names.APICertSecret: {
		CommonName: names.CommonNameAPI,
		DNSNames:   []string{names.DNSNameAPI, names.DNSNameMetrics},
	},
	names.ExportProxyCertSecret: {
		CommonName: names.CommonNameExportProxy, DNSNames: []string{names.DNSNameExportProxy},
	},
	names.ControllerCertSecret: {CommonName: names.CommonNameController, DNSNames: []string{names.DNSNameMetrics}},
}

var (
	secrets          = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps       = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	mutatingWebhooks = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "mutatingwebhookconfigurations",
	}
	validatingWebhooks = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "validatingwebhookconfigurations",
	}
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// object is a watched object whose change may call for work.
type object struct {
	resource  schema.GroupVersionResource
	namespace string
	name      string
}

// Rotator is a leader's background work: Start runs until its context ends.
type Rotator struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Namespace is the installation's.
	Namespace string
	// APIServices are the names of the APIServices that lead to virt-api.
	APIServices []string
	Policy      func() certs.Policy
	Now         func() time.Time
	Log         logr.Logger

	due    chan struct{}
	signer *signer
	// forgotten: the Secret of earlier versions is gone.
	forgotten bool
}

// New returns a Rotator of the installation in names.Namespace.
func New(
	client kubernetes.Interface, dynamicClient dynamic.Interface, apiServices []string, policy func() certs.Policy,
	log logr.Logger,
) *Rotator {
	r := &Rotator{
		Client: client, Dynamic: dynamicClient, Namespace: names.Namespace, APIServices: apiServices,
		Policy: policy, Now: time.Now, Log: log, due: make(chan struct{}, 1),
	}
	r.signer = newSigner(client, policy, func() time.Time { return r.Now() }, log)
	return r
}

// NeedLeaderElection returns true: only the leader renews certificates.
func (r *Rotator) NeedLeaderElection() bool { return true }

// Look has the Rotator look again soon; it does not block.
func (r *Rotator) Look() {
	select {
	case r.due <- struct{}{}:
	default: // It is going to look anyway.
	}
}

// Start keeps the certificates until the context ends.
func (r *Rotator) Start(ctx context.Context) error {
	watched := r.watched()
	done := make(chan struct{}, len(watched)+1)
	go func() {
		r.signer.run(ctx)
		done <- struct{}{}
	}()
	for _, object := range watched {
		go func() {
			r.watch(ctx, object)
			done <- struct{}{}
		}()
	}
	r.loop(ctx)
	for range cap(done) {
		<-done
	}
	return nil
}

func (r *Rotator) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.due:
		}
		again, err := r.Rotate(ctx)
		wait := max(again.Sub(r.Now()), time.Second)
		if err != nil && ctx.Err() == nil {
			r.Log.Error(err, "certificates are not all in place")
			wait = retry
		}
		timer.Reset(wait)
	}
}

// Rotate does what is due and returns when to do so again.
func (r *Rotator) Rotate(ctx context.Context) (time.Time, error) {
	stored, err := r.read(ctx)
	if err != nil {
		return time.Time{}, err
	}
	state, again, err := certs.Rotate(stored.state, leaves, r.Policy(), r.Now())
	if err != nil {
		return time.Time{}, err
	}
	if err := r.write(ctx, stored, state); err != nil {
		return time.Time{}, err
	}
	r.signer.use(*state.Signer)
	bundle := certs.EncodeBundle(state.Trusted)
	return again, errors.Join(
		r.forget(ctx),
		r.injectWebhooks(ctx, mutatingWebhooks, names.MutatingWebhook, bundle),
		r.injectWebhooks(ctx, validatingWebhooks, names.ValidatingWebhook, bundle),
		r.injectAPIServices(ctx, bundle),
	)
}

// forget removes the certificate that all virt-handlers had together in earlier versions: nothing takes it any more.
func (r *Rotator) forget(ctx context.Context) error {
	if r.forgotten {
		return nil
	}
	err := r.Client.CoreV1().Secrets(r.Namespace).Delete(ctx, names.OldHandlerCertSecret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete secret %s: %w", names.OldHandlerCertSecret, err)
	}
	r.forgotten = true
	return nil
}

func (r *Rotator) watched() []object {
	out := []object{
		{secrets, r.Namespace, names.CASecret},
		{configMaps, r.Namespace, names.CABundle},
		{mutatingWebhooks, "", names.MutatingWebhook},
		{validatingWebhooks, "", names.ValidatingWebhook},
	}
	for name := range leaves {
		out = append(out, object{secrets, r.Namespace, name})
	}
	for _, name := range r.APIServices {
		out = append(out, object{apiServices, "", name})
	}
	return out
}

// watch looks again whenever the object changes. It asks for that one by name, so that no right to
// see others is needed.
func (r *Rotator) watch(ctx context.Context, object object) {
	var resource dynamic.ResourceInterface = r.Dynamic.Resource(object.resource)
	if object.namespace != "" {
		resource = r.Dynamic.Resource(object.resource).Namespace(object.namespace)
	}
	listWatch := certs.Selected(resource, fields.OneTermEqualSelector(metav1.ObjectNameField, object.name))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(listWatch, r.Dynamic),
		ObjectType:    &unstructured.Unstructured{},
		// Only that something happened matters: the content, private keys among it, is not kept.
		Transform: func(obj any) (any, error) {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				keep := &unstructured.Unstructured{Object: map[string]any{}}
				keep.SetName(u.GetName())
				keep.SetNamespace(u.GetNamespace())
				keep.SetResourceVersion(u.GetResourceVersion())
				return keep, nil
			}
			return obj, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { r.Look() },
			UpdateFunc: func(any, any) { r.Look() },
			DeleteFunc: func(any) { r.Look() },
		},
	})
	informer.RunWithContext(ctx)
}

func labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/part-of":    "virtkit",
		"app.kubernetes.io/managed-by": names.VirtController,
	}
}

func describe(resource schema.GroupVersionResource, name string) string {
	return fmt.Sprintf("%s %s", resource.Resource, name)
}
