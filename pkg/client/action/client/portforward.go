package client

import (
	"context"
	"strconv"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// PortForward opens a stream to a port of a guest. resource is VMs or VMIs, protocol tcp or udp; the stream of udp
// is for stream.Packets. ctx bounds the opening only. Errors before the stream opens are API errors: 404 no such
// object, 409 the guest does not run, or refuses (stream.ReasonPortRefused).
func (c *Client) PortForward(
	ctx context.Context, resource, namespace, name string, port uint16, protocol string,
) (*stream.Conn, error) {
	return c.portForward(ctx, resource, namespace, name, port, protocol, stream.Options{})
}

// StandbyForward opens a stream to a port of a guest that the server connects to when it is asked, see
// stream.StandbySubprotocol. A server without such streams gives one that is connected already.
func (c *Client) StandbyForward(
	ctx context.Context, resource, namespace, name string, port uint16,
) (*stream.Conn, error) {
	return c.portForward(ctx, resource, namespace, name, port, "tcp", stream.Options{Standby: true})
}

func (c *Client) portForward(
	ctx context.Context, resource, namespace, name string, port uint16, protocol string, opts stream.Options,
) (*stream.Conn, error) {
	group := v1.SubresourceStorageGroupVersion
	path := "/apis/" + group.Group + "/" + group.Version + "/namespaces/" + namespace + "/" + resource + "/" + name +
		"/portforward/" + strconv.Itoa(int(port)) + "/" + protocol
	return c.dialer.Dial(ctx, path, nil, opts)
}
