package client

import (
	"context"
	"net/url"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// Console opens the serial console of an instance. The query is passed to the server: join=true attaches beside
// others, tail=N begins with the last N bytes that the guest wrote. ctx bounds the opening only. Errors before
// the stream opens are API errors: 404 no such instance, 409 it does not run.
func (c *Client) Console(ctx context.Context, namespace, name string, query url.Values) (*stream.Conn, error) {
	group := v1.SubresourceStorageGroupVersion
	path := "/apis/" + group.Group + "/" + group.Version + "/namespaces/" + namespace + "/" + VMIs + "/" + name +
		"/console"
	return stream.Dial(ctx, c.config, path, query, stream.Options{})
}
