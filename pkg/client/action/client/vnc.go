package client

import (
	"context"
	"io"
	"net/url"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// VNC opens the screen of an instance, a stream of RFB. The session of another client is taken over, or with preserve
// left alone: then a screen in use is an error, 503. ctx bounds the opening only.
func (c *Client) VNC(ctx context.Context, namespace, name string, preserve bool) (*stream.Conn, error) {
	group := v1.SubresourceStorageGroupVersion
	path := "/apis/" + group.Group + "/" + group.Version + "/namespaces/" + namespace + "/" + VMIs + "/" + name + "/vnc"
	query := url.Values{}
	if preserve {
		query.Set("preserveSession", "true")
	}
	return stream.Dial(ctx, c.config, path, query, stream.Options{})
}

// Screenshot returns a PNG of the instance's screen. With moveCursor the pointer is moved first, which wakes a screen
// that has gone dark. The caller closes the reader.
func (c *Client) Screenshot(ctx context.Context, namespace, name string, moveCursor bool) (io.ReadCloser, error) {
	request := c.subs.Get().Namespace(namespace).Resource(VMIs).Name(name).SubResource("vnc", "screenshot").
		SetHeader("Accept", "image/png, application/json")
	if moveCursor {
		request.Param("moveCursor", "true")
	}
	return request.Stream(ctx)
}
