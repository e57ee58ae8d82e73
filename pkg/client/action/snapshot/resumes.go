package snapshot

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Resumes returns the VMs whose guests go on from the memory in these snapshots at their next start, by the name of the
// snapshot. What the user may not read is taken to have none.
func Resumes(
	ctx context.Context, c *client.Client, namespace string, of []*snapshotv1beta1.VirtualMachineSnapshot,
) (map[string][]string, error) {
	holders := map[string]string{} // snapshots by the claim of their memory
	for _, s := range of {
		if !slices.Contains(Indications(s), string(vmsnapshots.WithMemory)) {
			continue
		}
		content, err := Content(ctx, c, s)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), err == nil && content == nil:
			continue
		case err != nil:
			return nil, err
		}
		holders[savedmemory.Volume(content.UID)] = s.Name
	}
	if len(holders) == 0 {
		return nil, nil
	}
	list, err := c.VMList(ctx, namespace, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look which VMs go on from the snapshots' memory: %w", err)
	}
	out := map[string][]string{}
	for i := range list.Items {
		if mark := savedmemory.Pending(&list.Items[i]); mark != nil && holders[mark.Claim] != "" {
			snapshot := holders[mark.Claim]
			out[snapshot] = append(out[snapshot], list.Items[i].Name)
		}
	}
	return out, nil
}
