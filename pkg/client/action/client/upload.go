package client

import (
	"context"
	"net/url"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Claims is the resource of PersistentVolumeClaims.
const Claims = "persistentvolumeclaims"

func uploadPath(namespace, claim string) string {
	group := v1.SubresourceStorageGroupVersion
	return "/apis/" + group.Group + "/" + group.Version + "/namespaces/" + namespace + "/" + Claims + "/" + claim +
		"/" + uploads.Subresource
}

// UploadState returns the state of the upload of an image to a claim.
func (c *Client) UploadState(ctx context.Context, namespace, claim string) (uploads.State, error) {
	var state uploads.State
	return state, c.Read(ctx, uploadPath(namespace, claim), nil, &state)
}

// Upload opens the stream over which the bytes of an image go. session is this client's.
func (c *Client) Upload(ctx context.Context, namespace, claim, session string) (*stream.Conn, error) {
	return stream.Dial(ctx, c.config, uploadPath(namespace, claim), url.Values{"session": {session}}, stream.Options{})
}
