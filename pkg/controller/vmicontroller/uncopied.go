package vmicontroller

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// lookAtUncopied finds out whether the VM of a VMI that may go knows that its disks were not copied to the claims that
// it names: only the VMI says which claims have the data. The VM is read past the cache, which may not have the change
// that made it name them.
func (r *Reconciler) lookAtUncopied(ctx context.Context, view *View) error {
	vmi := view.VMI
	owner := metav1.GetControllerOfNoCopy(vmi)
	if vmi.DeletionTimestamp == nil || len(own(*view)) > 0 || owner == nil ||
		owner.Kind != v1.VirtualMachineGroupVersionKind.Kind || !slices.ContainsFunc(vmi.Spec.Volumes,
		func(v v1.Volume) bool { return claims.Storage(&v) }) {
		return nil
	}
	vm := &v1.VirtualMachine{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: owner.Name}, vm)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get VM %s: %w", owner.Name, err)
	}
	view.Unnoted = vm.UID == owner.UID && vm.DeletionTimestamp == nil && volumemigration.Unnoted(vm, vmi)
	return nil
}
