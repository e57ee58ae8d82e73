package client

import (
	"context"
	"net"
	"net/url"
	"strconv"

	"github.com/virtkit/virtkit/pkg/stream"
)

// PodPort opens a stream to a TCP port of a pod, through the API server and the pod's node. ctx bounds the opening
// only.
func (c *Client) PodPort(ctx context.Context, namespace, pod string, port uint16) (net.Conn, error) {
	path := "/api/v1/namespaces/" + namespace + "/pods/" + pod + "/portforward"
	conn, err := c.dialer.Dial(ctx, path, url.Values{"ports": {strconv.Itoa(int(port))}},
		stream.Options{Subprotocol: stream.PodPortProtocol})
	if err != nil {
		return nil, err
	}
	return stream.NewPodPort(conn, port), nil
}
