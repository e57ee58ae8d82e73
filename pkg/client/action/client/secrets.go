package client

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
)

// Secret returns one Secret.
func (c *Client) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return secretOf(c.secrets(c.vms.Get(), namespace, name), ctx)
}

// CreateSecret creates a Secret and returns it as the server stored it. With dryRun the server does all but store it.
func (c *Client) CreateSecret(ctx context.Context, secret *corev1.Secret, dryRun bool) (*corev1.Secret, error) {
	body, err := json.Marshal(secret)
	if err != nil {
		return nil, fmt.Errorf("encode secret: %w", err)
	}
	return secretOf(written(c.secrets(c.vms.Post(), secret.Namespace, ""), dryRun).Body(body), ctx)
}

// PatchSecret merges patch, which is encoded as JSON, into a Secret.
func (c *Client) PatchSecret(
	ctx context.Context, namespace, name string, patch any, dryRun bool,
) (*corev1.Secret, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return secretOf(written(c.secrets(c.vms.Patch(types.MergePatchType), namespace, name), dryRun).Body(body), ctx)
}

// DeleteSecret deletes a Secret.
func (c *Client) DeleteSecret(ctx context.Context, namespace, name string) error {
	return c.secrets(c.vms.Delete(), namespace, name).Do(ctx).Error()
}

// MergeVM merges patch, which is encoded as JSON, into a VirtualMachine and returns it as the server stored it.
func (c *Client) MergeVM(
	ctx context.Context, namespace, name string, patch any, dryRun bool,
) (*v1.VirtualMachine, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	vm := &v1.VirtualMachine{}
	request := c.vms.Patch(types.MergePatchType).Namespace(namespace).Resource(VMs).Name(name).Body(body).
		Param("fieldManager", "virtctl")
	if dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	err = request.Do(ctx).Into(vm)
	setKind(vm)
	return vm, err
}

// secrets points a request at the core API, which the client has no types of its own for.
func (c *Client) secrets(r *rest.Request, namespace, name string) *rest.Request {
	path := "/api/v1/namespaces/" + namespace + "/secrets"
	if name != "" {
		path += "/" + name
	}
	return r.AbsPath(path)
}

func written(r *rest.Request, dryRun bool) *rest.Request {
	r = r.Param("fieldManager", "virtctl")
	if dryRun {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	return r
}

func secretOf(r *rest.Request, ctx context.Context) (*corev1.Secret, error) {
	data, err := raw(r.SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx))
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	if err := json.Unmarshal(data, secret); err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	return secret, nil
}
