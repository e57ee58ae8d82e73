package client

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// Stats reads what the guests of a namespace use, or all guests with "".
func (c *Client) Stats(ctx context.Context, namespace string) (stats.List, error) {
	group := v1.SubresourceStorageGroupVersion
	request := c.subs.Get().AbsPath("/apis", group.Group, group.Version, "stats")
	if namespace != "" {
		request = c.subs.Get().AbsPath("/apis", group.Group, group.Version, "namespaces", namespace, "stats")
	}
	var list stats.List
	data, err := raw(request.Do(ctx))
	if err != nil {
		return list, err
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return list, fmt.Errorf("read the statistics: %w", err)
	}
	return list, nil
}

// GuestLog opens a log of a guest's: source is serial or qemu; query has tail, since and follow as virt-api takes
// them. last, if there is any, is the end of what was read before, up to 256 bytes: the log begins after it.
func (c *Client) GuestLog(
	ctx context.Context, namespace, name, source string, query url.Values, last []byte,
) (io.ReadCloser, error) {
	request := c.subs.Get().Namespace(namespace).Resource(VMIs).Name(name).SubResource("log").Param("source", source)
	for key := range query {
		request = request.Param(key, query.Get(key))
	}
	if len(last) > 0 {
		request = request.SetHeader(names.HeaderLogResume, hex.EncodeToString(last))
	}
	return request.Stream(ctx)
}

// PodLog opens the log of a container; query has tailLines, sinceSeconds, follow, timestamps and previous, as the
// kubelet takes them.
func (c *Client) PodLog(
	ctx context.Context, namespace, pod, container string, query url.Values,
) (io.ReadCloser, error) {
	request := c.vms.Get().AbsPath("/api/v1/namespaces", namespace, "pods", pod, "log").Param("container", container)
	for key := range query {
		request = request.Param(key, query.Get(key))
	}
	return request.Stream(ctx)
}
