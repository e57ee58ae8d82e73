package client

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// GuestAgentInfo returns what an instance's guest agent reports. Errors: 404 no such instance, 409 it does not run or
// its agent does not answer.
func (c *Client) GuestAgentInfo(
	ctx context.Context, namespace, name string,
) (*v1.VirtualMachineInstanceGuestAgentInfo, error) {
	info := &v1.VirtualMachineInstanceGuestAgentInfo{}
	return info, c.subresource(ctx, namespace, name, "guestosinfo", info)
}

// GuestUsers lists who is logged in to an instance's guest. Errors are those of GuestAgentInfo.
func (c *Client) GuestUsers(
	ctx context.Context, namespace, name string,
) (*v1.VirtualMachineInstanceGuestOSUserList, error) {
	list := &v1.VirtualMachineInstanceGuestOSUserList{}
	return list, c.subresource(ctx, namespace, name, "userlist", list)
}

// GuestFileSystems lists the file systems of an instance's guest. Errors are those of GuestAgentInfo.
func (c *Client) GuestFileSystems(
	ctx context.Context, namespace, name string,
) (*v1.VirtualMachineInstanceFileSystemList, error) {
	list := &v1.VirtualMachineInstanceFileSystemList{}
	return list, c.subresource(ctx, namespace, name, "filesystemlist", list)
}

// Firewall returns what an instance's guest may send on its networks, and what of it was dropped. Errors: 404 no such
// instance, 409 it does not run.
func (c *Client) Firewall(ctx context.Context, namespace, name string) (*nwfilter.Filter, error) {
	out := &nwfilter.Filter{}
	return out, c.subresource(ctx, namespace, name, "firewall", out)
}

func (c *Client) subresource(ctx context.Context, namespace, name, subresource string, into any) error {
	data, err := raw(c.subs.Get().Namespace(namespace).Resource(VMIs).Name(name).SubResource(subresource).Do(ctx))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s of %s/%s: %w", subresource, namespace, name, err)
	}
	return nil
}

// Exec opens the stream in which a program runs in the guest; package stream/exec is its protocol. ctx bounds the
// opening only. Errors are those of GuestAgentInfo.
func (c *Client) Exec(ctx context.Context, namespace, name string) (*stream.Conn, error) {
	return c.agentStream(ctx, namespace, name, exec.Subresource)
}

// CopyFile opens the stream in which a file is copied to or from the guest; package stream/copyfile is its protocol.
// ctx bounds the opening only. Errors are those of GuestAgentInfo.
func (c *Client) CopyFile(ctx context.Context, namespace, name string) (*stream.Conn, error) {
	return c.agentStream(ctx, namespace, name, copyfile.Subresource)
}

func (c *Client) agentStream(ctx context.Context, namespace, name, subresource string) (*stream.Conn, error) {
	group := v1.SubresourceStorageGroupVersion
	path := "/apis/" + group.Group + "/" + group.Version + "/namespaces/" + namespace + "/" + VMIs + "/" + name + "/" +
		subresource
	return stream.Dial(ctx, c.config, path, nil, stream.Options{})
}
