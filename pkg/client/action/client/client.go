// Package client speaks to the API server about virtual machines: the kinds of kubevirt.io/v1 and their
// subresources, typed, and nothing else. It is all that virtctl and the dashboard link of an API
// client, which keeps their start fast.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/version"
)

// Resources as the API spells them.
const (
	VMs  = "virtualmachines"
	VMIs = "virtualmachineinstances"
)

// Scheme knows the kinds of kubevirt.io/v1. It is made on first use.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := v1.AddToScheme(s); err != nil {
		panic(err) // two types of one name: a programming error
	}
	metav1.AddToGroupVersion(s, v1.SubresourceStorageGroupVersion)
	return s
})

// Client is safe for use by several goroutines.
type Client struct {
	config *rest.Config
	vms    *rest.RESTClient
	subs   *rest.RESTClient
	dialer *stream.Dialer
}

// New makes a client for the cluster that config reaches; it does not dial.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.ContentType = runtime.ContentTypeJSON
	config.Wrap(locating)
	config.NegotiatedSerializer = serializer.NewCodecFactory(Scheme()).WithoutConversion()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &Client{config: config, dialer: stream.NewDialer(config)}
	kv, sub := *config, *config
	kv.GroupVersion = &v1.GroupVersion
	sub.GroupVersion = &v1.SubresourceStorageGroupVersion
	if c.vms, err = rest.RESTClientForConfigAndClient(&kv, httpClient); err != nil {
		return nil, err
	}
	if c.subs, err = rest.RESTClientForConfigAndClient(&sub, httpClient); err != nil {
		return nil, err
	}
	return c, nil
}

// Config returns how the client reaches the cluster. The caller must not change it.
func (c *Client) Config() *rest.Config { return c.config }

// params encodes list and watch options; kubevirt.io/v1 needs no conversion for them.
var params = sync.OnceValue(func() runtime.ParameterCodec { return runtime.NewParameterCodec(Scheme()) })

// VM returns one VirtualMachine.
func (c *Client) VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error) {
	vm := &v1.VirtualMachine{}
	err := c.get(ctx, VMs, namespace, name, vm)
	return vm, err
}

// VMI returns one VirtualMachineInstance.
func (c *Client) VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error) {
	vmi := &v1.VirtualMachineInstance{}
	err := c.get(ctx, VMIs, namespace, name, vmi)
	return vmi, err
}

func (c *Client) get(ctx context.Context, resource, namespace, name string, into runtime.Object) error {
	err := c.vms.Get().Namespace(namespace).Resource(resource).Name(name).Do(ctx).Into(into)
	setKind(into)
	return err
}

// list reads a list, and sets the kinds of its items.
func (c *Client) list(
	ctx context.Context, resource, namespace string, opts metav1.ListOptions, into runtime.Object,
) error {
	err := c.vms.Get().Namespace(namespace).Resource(resource).VersionedParams(&opts, params()).Do(ctx).Into(into)
	setKind(into)
	if err != nil {
		return err
	}
	return meta.EachListItem(into, func(item runtime.Object) error {
		setKind(item)
		return nil
	})
}

// VMList lists the VirtualMachines of a namespace, or of all with "".
func (c *Client) VMList(
	ctx context.Context, namespace string, opts metav1.ListOptions,
) (*v1.VirtualMachineList, error) {
	list := &v1.VirtualMachineList{}
	return list, c.list(ctx, VMs, namespace, opts, list)
}

// VMIList lists the VirtualMachineInstances of a namespace, or of all with "".
func (c *Client) VMIList(
	ctx context.Context, namespace string, opts metav1.ListOptions,
) (*v1.VirtualMachineInstanceList, error) {
	list := &v1.VirtualMachineInstanceList{}
	return list, c.list(ctx, VMIs, namespace, opts, list)
}

// Watch follows the changes of VMs or VMIs from opts.ResourceVersion on.
func (c *Client) Watch(
	ctx context.Context, resource, namespace string, opts metav1.ListOptions,
) (watch.Interface, error) {
	opts.Watch = true
	return c.vms.Get().Namespace(namespace).Resource(resource).VersionedParams(&opts, params()).Watch(ctx)
}

// CreateVM creates vm and returns it as the server stored it. With dryRun the server does all but store it.
func (c *Client) CreateVM(
	ctx context.Context, namespace string, vm *v1.VirtualMachine, dryRun bool,
) (*v1.VirtualMachine, error) {
	opts := metav1.CreateOptions{FieldManager: "virtctl"}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	created := &v1.VirtualMachine{}
	err := c.vms.Post().Namespace(namespace).Resource(VMs).VersionedParams(&opts, params()).Body(vm).Do(ctx).
		Into(created)
	setKind(created)
	return created, err
}

// Put requests a subresource that takes a body and answers with nothing of use, as start, stop and pause do.
// body may be nil.
func (c *Client) Put(ctx context.Context, resource, namespace, name, subresource string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s options: %w", subresource, err)
	}
	if body == nil {
		data = []byte("{}")
	}
	return c.subs.Put().Namespace(namespace).Resource(resource).Name(name).
		SubResource(strings.Split(subresource, "/")...).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(data).Do(ctx).Error()
}

// ServerVersion returns the version of the virt-api that answers.
func (c *Client) ServerVersion(ctx context.Context) (version.Info, error) {
	var info version.Info
	// What the server said of an error; DoRaw forgets it.
	data, err := raw(c.subs.Get().
		AbsPath("/apis", v1.SubresourceStorageGroupVersion.Group, v1.SubresourceStorageGroupVersion.Version, "version").
		Do(ctx))
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("read the server's version: %w", err)
	}
	return info, nil
}

// Answers asks, once, whether the API server is there: nil and what the server says of an error say that it is.
func (c *Client) Answers(ctx context.Context) error {
	return c.vms.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error()
}

// NamespacePhase reads, once, whether a namespace is active or being deleted.
func (c *Client) NamespacePhase(ctx context.Context, name string) (corev1.NamespacePhase, error) {
	object, err := decoded(c.vms.Get().AbsPath("/api/v1/namespaces", name).MaxRetries(0).Do(ctx))
	if err != nil {
		return "", err
	}
	phase, _, err := unstructured.NestedString(object, "status", "phase")
	return corev1.NamespacePhase(phase), err
}

// HTTPClient returns an HTTP client with the cluster's TLS settings and credentials.
func (c *Client) HTTPClient() *http.Client { return c.vms.Client }

// setKind fills in what typed decoding drops, so that objects print with apiVersion and kind.
func setKind(obj runtime.Object) {
	kinds, _, err := Scheme().ObjectKinds(obj)
	if err == nil && len(kinds) > 0 {
		obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
}

// Namespaces lists the names of the cluster's namespaces.
func (c *Client) Namespaces(ctx context.Context) ([]string, error) {
	return c.Names(ctx, "/api/v1", "", "namespaces")
}
