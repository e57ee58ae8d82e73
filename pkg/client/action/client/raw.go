package client

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Raw returns one object of kubevirt.io/v1 as decoded JSON, with nothing lost that the server has.
func (c *Client) Raw(ctx context.Context, resource, namespace, name string) (map[string]any, error) {
	result := c.vms.Get().Namespace(namespace).Resource(resource).Name(name).Do(ctx)
	return decoded(result)
}

// TryPatch returns what one object would be with a patch, as decoded JSON; the server does all but store it.
func (c *Client) TryPatch(
	ctx context.Context, resource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions,
) (map[string]any, error) {
	opts.DryRun = []string{metav1.DryRunAll}
	result := c.vms.Patch(kind).Namespace(namespace).Resource(resource).Name(name).VersionedParams(&opts, params()).
		Body(patch).Do(ctx)
	return decoded(result)
}

// TryCreate returns what an object would be, as decoded JSON; the server does all but store it.
func (c *Client) TryCreate(ctx context.Context, resource, namespace string, object []byte) (map[string]any, error) {
	opts := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "virtctl"}
	result := c.vms.Post().Namespace(namespace).Resource(resource).VersionedParams(&opts, params()).
		SetHeader("Content-Type", "application/json").Body(object).Do(ctx)
	return decoded(result)
}

func decoded(result rest.Result) (map[string]any, error) {
	// Raw alone would leave the server's words out of its error.
	if err := result.Error(); err != nil {
		return nil, err
	}
	data, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, &AnswerError{err}
	}
	return out, nil
}

// AnswerError is an answer of the server that cannot be read.
type AnswerError struct{ err error }

func (e *AnswerError) Error() string { return "read the server's answer: " + e.err.Error() }

func (e *AnswerError) Unwrap() error { return e.err }
