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
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// lookAtLeft finds out what there is to know of the claims that a guest has left. All is read past the cache, since
// claims are deleted by it; that is once for each copy.
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
	view.VM, view.Left = vm, map[string]LeftClaim{}
	for _, left := range volumemigration.LeftBy(&vmi.Status) {
		is, err := r.leftClaim(ctx, view, left)
		if err != nil {
			return err
		}
		view.Left[left.Claim] = is
	}
	return nil
}

// leftClaim looks at one claim, and at its users where it is to be deleted.
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
	if claim.UID != left.UID || claim.DeletionTimestamp != nil {
		return is, nil
	}
	if name := claim.Spec.StorageClassName; name != nil && *name != "" {
		class := &storagev1.StorageClass{}
		switch err := r.Client.Get(ctx, types.NamespacedName{Name: *name}, class); {
		case err == nil:
			is.Class = class
		case !apierrors.IsNotFound(err):
			return is, fmt.Errorf("get StorageClass %s: %w", *name, err)
		}
	}
	if !volumemigration.DeletesClaims(view.VM, is.Class) {
		return is, nil
	}
	if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && owner.Kind == kindDataVolume && r.CDI.Installed() {
		if is.DataVolume, err = r.CDI.Get(ctx, claim.Namespace, owner.Name); err != nil {
			return is, err
		}
		if is.DataVolume != nil && is.DataVolume.UID != owner.UID {
			is.DataVolume = nil
		}
	}
	is.User, err = r.otherUser(ctx, view.VMI, claim.Name)
	return is, err
}

// otherUser says who but a VMI and its VM uses a claim of their namespace: who mounts it, has it as a volume, exports
// it, or copies it. "" is nobody.
func (r *Reconciler) otherUser(ctx context.Context, vmi *v1.VirtualMachineInstance, claim string) (string, error) {
	var (
		pods    corev1.PodList
		vms     v1.VirtualMachineList
		vmis    v1.VirtualMachineInstanceList
		exports exportv1beta1.VirtualMachineExportList
		all     corev1.PersistentVolumeClaimList
	)
	for what, list := range map[string]client.ObjectList{
		"pods": &pods, "VMs": &vms, "VMIs": &vmis, "exports": &exports, "claims": &all,
	} {
		if err := r.Live.List(ctx, list, client.InNamespace(vmi.Namespace)); err != nil {
			return "", fmt.Errorf("list %s: %w", what, err)
		}
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; claims.UsedBy(pod, claim) && !metav1.IsControlledBy(pod, vmi) {
			return "pod " + pod.Name + " uses it", nil
		}
	}
	for i := range vms.Items {
		if vm := &vms.Items[i]; vm.Name != vmi.Name && named(vm, claim) {
			return "VirtualMachine " + vm.Name + " names it", nil
		}
	}
	for i := range vmis.Items {
		if other := &vmis.Items[i]; other.UID != vmi.UID && uses(other, claim) {
			return "VirtualMachineInstance " + other.Name + " uses it", nil
		}
	}
	for i := range exports.Items {
		if e := &exports.Items[i]; e.Spec.Source.Kind == kindClaim && e.Spec.Source.Name == claim {
			return "VirtualMachineExport " + e.Name + " exports it", nil
		}
	}
	for i := range all.Items {
		if c := &all.Items[i]; c.Status.Phase != corev1.ClaimBound && copies(c, claim) {
			return "PersistentVolumeClaim " + c.Name + " is made from it", nil
		}
	}
	return "", nil
}

const kindClaim = "PersistentVolumeClaim"

// copies reports a claim that the storage fills from another of its namespace.
func copies(c *corev1.PersistentVolumeClaim, from string) bool {
	if s := c.Spec.DataSource; s != nil && s.Kind == kindClaim && s.Name == from {
		return true
	}
	s := c.Spec.DataSourceRef
	return s != nil && s.Kind == kindClaim && s.Name == from && (s.Namespace == nil || *s.Namespace == c.Namespace)
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
