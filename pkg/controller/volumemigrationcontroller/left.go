package volumemigrationcontroller

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Reasons of the events about a claim that a guest has left. That nobody wants it deleted is no event.
const (
	reasonClaimDeleted = "CopiedClaimDeleted"
	reasonClaimKept    = "CopiedClaimKept"
)

// LeftClaim is what is known of a claim that a guest has left.
type LeftClaim struct {
	// Claim is nil when it is gone; DataVolume is the one to which it belongs, and Class its StorageClass: nil where
	// there is none.
	Claim      *corev1.PersistentVolumeClaim
	DataVolume *cdiv1.DataVolume
	Class      *storagev1.StorageClass
	// User says who else uses it, "" when nobody does.
	User string
}

// clear deletes the claims that a guest has left where the VM or their class wants that, and nothing speaks against it.
// Until a claim is seen to go, the status says that it is left: who comes after a kill deletes it again.
func (s *Step) clear(view View) {
	var stay []volumemigration.Left
	for _, left := range volumemigration.LeftBy(&s.Status) {
		is := view.Left[left.Claim]
		switch {
		case is.Claim == nil || is.Claim.UID != left.UID || is.Claim.DeletionTimestamp != nil: // gone, or going
		case uses(view.VMI, left.Claim), view.VM == nil: // the guest came back to it, or nobody has a say
		case volumemigration.RecordOf(view.VM) != nil: // a migration may yet have the VM name it again
			stay = append(stay, left)
			s.RequeueAfter = again
		case !volumemigration.DeletesClaims(view.VM, is.Class):
		default:
			if why := kept(view, left, is); why != "" {
				s.Events = append(s.Events, notice{corev1.EventTypeWarning, reasonClaimKept, fmt.Sprintf(
					"Kept PersistentVolumeClaim %s, which the guest has left: %s", left.Claim, why)})
				continue
			}
			stay = append(stay, left)
			s.Delete = append(s.Delete, object(is))
			s.RequeueAfter = again
		}
	}
	s.Failed = volumemigration.SetLeft(&s.Status, stay, view.Now)
}

// object returns what is deleted for a claim: the DataVolume, with which it goes, or else itself.
func object(is LeftClaim) client.Object {
	if is.DataVolume != nil && is.DataVolume.DeletionTimestamp == nil {
		return is.DataVolume
	}
	return is.Claim
}

// uses reports whether the guest of a VMI uses a claim, or is to.
func uses(vmi *v1.VirtualMachineInstance, claim string) bool {
	return slices.ContainsFunc(vmi.Status.VolumeStatus, func(s v1.VolumeStatus) bool {
		return claims.OfStatus(&s) == claim
	}) || hasClaim(vmi.Spec.Volumes, claim)
}

func hasClaim(volumes []v1.Volume, claim string) bool {
	return slices.ContainsFunc(volumes, func(v v1.Volume) bool { return claims.Name(&v) == claim })
}

// kept returns why a claim that is to be deleted must not be.
func kept(view View, left volumemigration.Left, is LeftClaim) string {
	if named(view.VM, left.Claim) {
		return "the VirtualMachine names it"
	}
	if view.VM.Spec.Template != nil {
		v := hotplug.Volume(&view.VM.Spec.Template.Spec, left.Volume)
		if now := volumemigration.InUse(&view.VMI.Status, left.Volume); v != nil && claims.Name(v) != now {
			return fmt.Sprintf("the guest uses claim %s, and the VirtualMachine names %s", now, claims.Name(v))
		}
	}
	if is.User != "" {
		return is.User
	}
	owners := slices.Clone(is.Claim.OwnerReferences)
	if is.DataVolume != nil {
		owners = append(owners, is.DataVolume.OwnerReferences...)
	}
	for _, owner := range owners {
		ours := owner.UID == view.VM.UID || owner.Kind == kindDataVolume &&
			(is.DataVolume == nil || owner.UID == is.DataVolume.UID) // nil is gone, or no kind of the cluster's
		if !ours {
			return fmt.Sprintf("it belongs to %s %s", owner.Kind, owner.Name)
		}
	}
	return ""
}

const kindDataVolume = "DataVolume"

// named reports whether a VM names a claim, or a DataVolume of that name.
func named(vm *v1.VirtualMachine, claim string) bool {
	if slices.ContainsFunc(vm.Spec.DataVolumeTemplates,
		func(t v1.DataVolumeTemplateSpec) bool { return t.Name == claim }) {
		return true
	}
	return vm.Spec.Template != nil && hasClaim(vm.Spec.Template.Spec.Volumes, claim)
}
