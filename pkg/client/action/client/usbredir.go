package client

import (
	"context"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// USBRedir opens a port of an instance for a USB device, a stream of the protocol usbredir. ctx bounds the opening
// only.
func (c *Client) USBRedir(ctx context.Context, namespace, name string) (*stream.Conn, error) {
	group := v1.SubresourceStorageGroupVersion
	path := "/apis/" + group.Group + "/" + group.Version + "/namespaces/" + namespace + "/" + VMIs + "/" + name +
		"/usbredir"
	return stream.Dial(ctx, c.config, path, nil, stream.Options{})
}
