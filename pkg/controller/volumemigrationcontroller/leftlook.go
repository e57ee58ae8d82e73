package volumemigrationcontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// lookAtLeft finds out what there is to know of the claims that a guest has left. Claims, VMs and all that may use a
// claim are read past the cache, since claims are deleted by it; that is twice for each copy.
func (r *Reconciler) lookAtLeft(ctx context.Context, view *View) error {
	vm, vmi := &v1.VirtualMachine{}, view.VMI
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(vmi), vm); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get VirtualMachine %s: %w", vmi.Name, err)
	case vm.DeletionTimestamp != nil || !metav1.IsControlledBy(vmi, vm):
		return nil
	}
	view.VM = vm
	if volumemigration.RecordOf(vm) != nil {
		return nil // Next waits, whatever the claims are.
	}
	view.Left, view.Seen = map[types.UID]LeftClaim{}, r.seenOf(vmi)
	var all *users
	for _, left := range volumemigration.LeftBy(&vmi.Status) {
		is, err := r.leftClaim(ctx, view, left)
		if err != nil {
			return err
		}
		if is.Claim == nil || is.Claim.UID != left.UID {
			continue
		}
		if is.Claim.DeletionTimestamp == nil && volumemigration.DeletesClaims(vm, is.Class) {
			if all == nil {
				if all, err = r.users(ctx, vmi.Namespace); err != nil {
					return err
				}
			}
			if err := r.lookAtDataVolume(ctx, &is); err != nil {
				return err
			}
			is.User = all.of(left.Claim, vmi)
			is.Pod, is.Ours = all.pod(left.Claim, vmi)
		}
		view.Left[left.UID] = is
	}
	return nil
}

// leftClaim looks at one claim, and at its class.
func (r *Reconciler) leftClaim(ctx context.Context, view *View, left volumemigration.Left) (LeftClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: view.VMI.Namespace, Name: left.Claim}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return LeftClaim{}, nil
	case err != nil:
		return LeftClaim{}, fmt.Errorf("get claim %s: %w", left.Claim, err)
	}
	is := LeftClaim{Claim: claim}
	if name := claim.Spec.StorageClassName; name != nil && *name != "" {
		class := &storagev1.StorageClass{}
		switch err := r.Client.Get(ctx, types.NamespacedName{Name: *name}, class); {
		case err == nil:
			is.Class = class
		case !apierrors.IsNotFound(err):
			return is, fmt.Errorf("get StorageClass %s: %w", *name, err)
		}
	}
	return is, nil
}

// lookAtDataVolume finds the DataVolume to which a claim belongs. users has waited until it is known whether the
// cluster has any.
func (r *Reconciler) lookAtDataVolume(ctx context.Context, is *LeftClaim) error {
	if !r.CDI.Installed() {
		return nil
	}
	for _, owner := range is.Claim.OwnerReferences {
		if owner.Kind != kindDataVolume {
			continue
		}
		dv, err := r.CDI.Get(ctx, is.Claim.Namespace, owner.Name)
		if err != nil {
			return err
		}
		if dv != nil && dv.UID == owner.UID {
			is.DataVolume = dv
		}
	}
	return nil
}

// seenOf returns what the last look at the claims came to that a VMI's guest has left.
func (r *Reconciler) seenOf(vmi *v1.VirtualMachineInstance) map[types.UID]Verdict {
	if all, ok := r.seen.Load(client.ObjectKeyFromObject(vmi)); ok {
		return all.(map[types.UID]Verdict)
	}
	return nil
}

// remember keeps what a look came to for the next.
func (r *Reconciler) remember(vmi *v1.VirtualMachineInstance, seen map[types.UID]Verdict) {
	if len(seen) == 0 {
		r.seen.Delete(client.ObjectKeyFromObject(vmi))
		return
	}
	r.seen.Store(client.ObjectKeyFromObject(vmi), seen)
}

// mark has claims say that the guest of a VMI leaves them. What is gone has nothing to say.
func (r *Reconciler) mark(
	ctx context.Context, vmi *v1.VirtualMachineInstance, claims []*corev1.PersistentVolumeClaim,
) error {
	for _, claim := range claims {
		claim = claim.DeepCopy()
		err := r.writes.Change(ctx, claim, func() {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volumemigration.LeftAnnotation, string(vmi.UID))
		})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("write annotation %s of claim %s: %w", volumemigration.LeftAnnotation, claim.Name, err)
		}
	}
	return nil
}

// lookAtSources finds the claims that the guest leaves.
func (r *Reconciler) lookAtSources(ctx context.Context, view *View) error {
	view.Sources = map[string]*corev1.PersistentVolumeClaim{}
	for _, m := range volumemigration.Moves(view.VMI) {
		claim := &corev1.PersistentVolumeClaim{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: view.VMI.Namespace, Name: m.From}, claim)
		switch {
		case err == nil:
			view.Sources[m.From] = claim
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get claim %s: %w", m.From, err)
		}
	}
	return nil
}
