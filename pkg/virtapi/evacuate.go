package virtapi

import (
	"github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
)

// evacuateCancel removes the mark by which a VMI is to leave its node; name may be that of its VM, which is the same. A
// VMI without such a mark, or that is to leave another node than the options name, stays as it is. A migration that is
// under way goes on.
func (q *requests) evacuateCancel(r *restful.Request, namespace, name string) error {
	options := &v1.EvacuateCancelOptions{}
	if err := decode(r.Request, options); err != nil {
		return err
	}
	if err := checkDryRun(options.DryRun); err != nil {
		return err
	}
	ctx := r.Request.Context()
	var err error
	for range attempts {
		var vmi *v1.VirtualMachineInstance
		if vmi, err = q.machines.vmi(ctx, namespace, name); err != nil {
			return err
		}
		node := vmi.Status.EvacuationNodeName
		if node == "" || options.EvacuationNodeName != "" && options.EvacuationNodeName != node {
			return nil
		}
		patch := map[string]any{"status": map[string]any{"evacuationNodeName": nil}}
		if err = q.machines.patch(ctx, virtualMachineInstances, vmi, "status", patch,
			options.DryRun); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}
