package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Migrations is the resource of VirtualMachineInstanceMigration.
const Migrations = "virtualmachineinstancemigrations"

// MigrationList lists the VirtualMachineInstanceMigrations of a namespace, or of all with "".
func (c *Client) MigrationList(
	ctx context.Context, namespace string, opts metav1.ListOptions,
) (*v1.VirtualMachineInstanceMigrationList, error) {
	list := &v1.VirtualMachineInstanceMigrationList{}
	return list, c.list(ctx, Migrations, namespace, opts, list)
}

// Delete deletes one object of kubevirt.io/v1. It returns when the request is accepted: what has finalizers is
// still there.
func (c *Client) Delete(ctx context.Context, resource, namespace, name string, opts metav1.DeleteOptions) error {
	return c.vms.Delete().Namespace(namespace).Resource(resource).Name(name).Body(&opts).Do(ctx).Error()
}
