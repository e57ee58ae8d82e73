package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/report/guestfs"
	"github.com/virtkit/virtkit/pkg/stream"
)

// PodProcess opens a stream to a process in a pod, through the API server and the pod's node: with way "exec" to one
// that is started for it, with "attach" to the first one of a container. The query is Kubernetes' own, and
// the options' subprotocol, too. ctx bounds the opening only.
func (c *Client) PodProcess(
	ctx context.Context, namespace, pod, way string, query url.Values, opts stream.Options,
) (stream.PodProcess, error) {
	path := "/api/v1/namespaces/" + namespace + "/pods/" + pod + "/" + way
	opts.Subprotocol = stream.PodProcessProtocol
	conn, err := c.dialer.Dial(ctx, path, query, opts)
	return stream.PodProcess{Conn: conn}, err
}

// GuestfsImage returns the image with libguestfs that the cluster's virt-api names, empty for none.
func (c *Client) GuestfsImage(ctx context.Context) (string, error) {
	data, err := raw(c.subs.Get().
		AbsPath("/apis", v1.SubresourceStorageGroupVersion.Group, v1.SubresourceStorageGroupVersion.Version, "guestfs").
		Do(ctx))
	if err != nil {
		return "", err
	}
	var info guestfs.Info
	if err := json.Unmarshal(data, &info); err != nil {
		return "", fmt.Errorf("read the server's answer: %w", err)
	}
	return info.Image(), nil
}
