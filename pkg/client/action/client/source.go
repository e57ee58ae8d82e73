package client

import (
	"context"
	"sync"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
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

// lists makes an empty list of a resource.
var lists = map[schema.GroupVersionResource]func() runtime.Object{
	v1.GroupVersion.WithResource(VMs):  func() runtime.Object { return &v1.VirtualMachineList{} },
	v1.GroupVersion.WithResource(VMIs): func() runtime.Object { return &v1.VirtualMachineInstanceList{} },
	v1.GroupVersion.WithResource(Migrations): func() runtime.Object {
		return &v1.VirtualMachineInstanceMigrationList{}
	},
	corev1.SchemeGroupVersion.WithResource(Nodes):  func() runtime.Object { return &corev1.NodeList{} },
	corev1.SchemeGroupVersion.WithResource(Events): func() runtime.Object { return &corev1.EventList{} },

	poolv1beta1.SchemeGroupVersion.WithResource(store.Pools): func() runtime.Object {
		return &poolv1beta1.VirtualMachinePoolList{}
	},
	snapshotv1beta1.SchemeGroupVersion.WithResource(Snapshots): func() runtime.Object {
		return &snapshotv1beta1.VirtualMachineSnapshotList{}
	},
	snapshotv1beta1.SchemeGroupVersion.WithResource(Restores): func() runtime.Object {
		return &snapshotv1beta1.VirtualMachineRestoreList{}
	},
	clonev1beta1.SchemeGroupVersion.WithResource(Clones): func() runtime.Object {
		return &clonev1beta1.VirtualMachineCloneList{}
	},
	snapshotv1beta1.SchemeGroupVersion.WithResource(store.Contents): func() runtime.Object {
		return &snapshotv1beta1.VirtualMachineSnapshotContentList{}
	},
	volumesnapshotv1.SchemeGroupVersion.WithResource(store.VolumeSnapshots): func() runtime.Object {
		return &volumesnapshotv1.VolumeSnapshotList{}
	},
	v1.GroupVersion.WithResource(store.ReplicaSets): func() runtime.Object {
		return &v1.VirtualMachineInstanceReplicaSetList{}
	},

	instancetypev1beta1.SchemeGroupVersion.WithResource(store.Instancetypes): func() runtime.Object {
		return &instancetypev1beta1.VirtualMachineInstancetypeList{}
	},
	instancetypev1beta1.SchemeGroupVersion.WithResource(store.ClusterInstancetypes): func() runtime.Object {
		return &instancetypev1beta1.VirtualMachineClusterInstancetypeList{}
	},
	instancetypev1beta1.SchemeGroupVersion.WithResource(store.Preferences): func() runtime.Object {
		return &instancetypev1beta1.VirtualMachinePreferenceList{}
	},
	instancetypev1beta1.SchemeGroupVersion.WithResource(store.ClusterPreferences): func() runtime.Object {
		return &instancetypev1beta1.VirtualMachineClusterPreferenceList{}
	},
}

// Resources that can be followed, besides VMs, VMIs and Migrations.
const (
	Nodes     = "nodes"
	Events    = "events"
	Snapshots = store.Snapshots
	Restores  = store.Restores
	Clones    = store.Clones
)

// Source lists and watches a resource, in one namespace or with "" in all, for pkg/client/store.
func (c *Client) Source(gv schema.GroupVersion, resource, namespace string) (store.Source, error) {
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
	empty := lists[gv.WithResource(resource)]
	return store.Source{
		List: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list := empty()
			return list, request(&opts).Do(ctx).Into(list)
		},
		Watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return request(&opts).Watch(ctx)
		},
	}, nil
}
