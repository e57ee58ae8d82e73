package client

import (
	"context"
	"fmt"
	"strings"
	"sync"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// watched knows the kinds that are followed besides those of kubevirt.io/v1. It is made on first use: most commands
// follow none.
var watched = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, corev1.AddToScheme,
		instancetypev1beta1.AddToScheme, poolv1beta1.AddToScheme,
		snapshotv1beta1.AddToScheme, clonev1beta1.AddToScheme, volumesnapshotv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // two types of one name: a programming error
		}
	}
	return s
})

// listOf returns the kind of the lists of a resource, such as VirtualMachineList, by the rule that names resources
// after kinds.
func listOf(gv schema.GroupVersion, resource string) (schema.GroupVersionKind, error) {
	for name := range watched().KnownTypes(gv) {
		kind, isList := strings.CutSuffix(name, "List")
		if !isList {
			continue
		}
		if plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(kind)); plural.Resource == resource {
			return gv.WithKind(name), nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("%s of %s cannot be followed: this program does not know their kind",
		resource, gv)
}

// Resources that can be followed, besides VMs, VMIs and Migrations.
const (
	Nodes     = "nodes"
	Events    = "events"
	Snapshots = store.Snapshots
	Restores  = store.Restores
	Clones    = store.Clones
)

// Source lists and watches a resource, in one namespace or with "" in all, for pkg/client/store. A resource of unknown
// kind is an error.
func (c *Client) Source(gv schema.GroupVersion, resource, namespace string) (store.Source, error) {
	kind, err := listOf(gv, resource)
	if err != nil {
		return store.Source{}, err
	}
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &gv
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(watched()).WithoutConversion()
	rc, err := rest.RESTClientForConfigAndClient(config, c.vms.Client)
	if err != nil {
		return store.Source{}, err
	}
	codec := runtime.NewParameterCodec(watched())
	request := func(opts *metav1.ListOptions) *rest.Request {
		return rc.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(opts, codec)
	}
	return store.Source{
		List: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := watched().New(kind)
			if err != nil {
				return nil, err
			}
			return list, request(&opts).Do(ctx).Into(list)
		},
		Watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return request(&opts).Watch(ctx)
		},
	}, nil
}
