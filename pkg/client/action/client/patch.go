package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// KubeVirts is the resource of the configuration of an installation.
const KubeVirts = "kubevirts"

// KubeVirtList lists the KubeVirt resources of the cluster.
func (c *Client) KubeVirtList(ctx context.Context) (*v1.KubeVirtList, error) {
	list := &v1.KubeVirtList{}
	err := c.vms.Get().Resource(KubeVirts).Do(ctx).Into(list)
	setKind(list)
	for i := range list.Items {
		setKind(&list.Items[i])
	}
	return list, err
}

// Patch changes one object of kubevirt.io/v1 and reads what it has become into the object that is given. With dryRun
// the server does all but store it.
func (c *Client) Patch(
	ctx context.Context, resource, namespace, name string, kind types.PatchType, patch []byte, dryRun bool,
	into runtime.Object,
) error {
	opts := metav1.PatchOptions{FieldManager: "virtctl"}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	err := c.vms.Patch(kind).Namespace(namespace).Resource(resource).Name(name).VersionedParams(&opts, params()).
		Body(patch).Do(ctx).Into(into)
	setKind(into)
	return err
}
