package client

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Names lists the names of any resource of a group, "/apis/GROUP/VERSION" or "/api/v1", of which nothing else is asked.
func (c *Client) Names(ctx context.Context, group, namespace, resource string) ([]string, error) {
	data, err := raw(c.vms.Get().AbsPath(objectPath(group, namespace, resource)...).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx))
	if err != nil {
		return nil, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read the list of %s: %w", resource, err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// CreateObject creates any object of a resource and returns it as the server stored it. With dryRun the server does
// all but store it.
func (c *Client) CreateObject(
	ctx context.Context, group, namespace, resource string, object *unstructured.Unstructured, dryRun bool,
) (*unstructured.Unstructured, error) {
	body, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", object.GetKind(), err)
	}
	request := c.vms.Post().AbsPath(objectPath(group, namespace, resource)...).Param("fieldManager", "virtctl").
		SetHeader("Content-Type", "application/json").Body(body)
	return sent(ctx, request, dryRun, object.GetKind()+" that was created")
}

// CreateTyped creates an object of a Go type, without its status, and reads what the server stored into another.
func (c *Client) CreateTyped(
	ctx context.Context, group, resource string, object, into metav1.Object, dryRun bool,
) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	delete(content, "status")
	created, err := c.CreateObject(ctx, group, object.GetNamespace(), resource,
		&unstructured.Unstructured{Object: content}, dryRun)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, into)
}

// sent sends a request that writes an object, and returns what the server answers. With dryRun the server does all but
// store it.
func sent(ctx context.Context, request *rest.Request, dryRun bool, what string) (*unstructured.Unstructured, error) {
	if dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	data, err := raw(request.Do(ctx))
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("read the %s: %w", what, err)
	}
	return object, nil
}

func objectPath(group, namespace, resource string) []string {
	if namespace == "" {
		return []string{group, resource}
	}
	return []string{group, "namespaces", namespace, resource}
}

// raw returns a result's body, or the error that the server has put into it.
func raw(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// MergeObject applies a JSON merge patch to an object of any resource of a group, or to a subresource of it unless that
// is empty, and returns what the server answers.
func (c *Client) MergeObject(
	ctx context.Context, group, namespace, resource, name, subresource string, patch []byte, dryRun bool,
) (*unstructured.Unstructured, error) {
	path := append(objectPath(group, namespace, resource), name)
	if subresource != "" {
		path = append(path, subresource)
	}
	request := c.vms.Patch(types.MergePatchType).AbsPath(path...).Param("fieldManager", "virtctl").Body(patch)
	return sent(ctx, request, dryRun, resource+" that was changed")
}

// DeleteObject deletes an object of any resource of a group. It returns when the request is accepted: what has
// finalizers is still there.
func (c *Client) DeleteObject(
	ctx context.Context, group, namespace, resource, name string, opts metav1.DeleteOptions,
) error {
	body, err := json.Marshal(opts)
	if err != nil {
		return fmt.Errorf("encode the options: %w", err)
	}
	path := append(objectPath(group, namespace, resource), name)
	return c.vms.Delete().AbsPath(path...).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}
