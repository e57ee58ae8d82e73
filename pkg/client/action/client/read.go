package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Read reads a path of the API server, such as /api/v1/nodes, into a value of a matching type.
func (c *Client) Read(ctx context.Context, path string, query url.Values, into any) error {
	return c.read(ctx, path, query, "application/json", into)
}

// ReadMetadata reads an object's metadata alone, for an object whose content is nobody's business, a Secret say.
func (c *Client) ReadMetadata(ctx context.Context, path string) (*metav1.PartialObjectMetadata, error) {
	out := &metav1.PartialObjectMetadata{}
	err := c.read(ctx, path, nil, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", out)
	return out, err
}

func (c *Client) read(ctx context.Context, path string, query url.Values, accept string, into any) error {
	request := c.vms.Get().AbsPath(path).SetHeader("Accept", accept)
	for key, values := range query {
		for _, value := range values {
			request = request.Param(key, value)
		}
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // what the server said; DoRaw and Raw forget it
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Stream opens a path of the API server whose answer goes on, such as a watch.
func (c *Client) Stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	request := c.vms.Get().AbsPath(path).SetHeader("Accept", "application/json")
	for key, values := range query {
		for _, value := range values {
			request = request.Param(key, value)
		}
	}
	return request.Stream(ctx)
}
