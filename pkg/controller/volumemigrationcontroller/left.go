package volumemigrationcontroller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Reasons of the events about a claim that a guest has left. That nobody wants it deleted is no event.
const (
	reasonClaimDeleted = "CopiedClaimDeleted"
	reasonClaimKept    = "CopiedClaimKept"
)

// inUse is the delay before the next look at a claim that a pod uses, which ends by itself.
const inUse = time.Minute

// LeftClaim is what is known of a claim that a guest has left.
type LeftClaim struct {
	// Claim is nil when it is gone; DataVolume is the one to which it belongs, and Class its StorageClass: nil where
	// there is none.
	Claim      *corev1.PersistentVolumeClaim
	DataVolume *cdiv1.DataVolume
	Class      *storagev1.StorageClass
	// User says who else uses it, "" when nobody does; Pod does so of a pod, and Ours that it is the guest's.
	User, Pod string
	Ours      bool
}

// Verdict is what a look at a claim came to that a guest has left, and since when: Pod uses it, or "" nothing keeps it.
type Verdict struct {
	Pod   string
	Since time.Time
}

// mark has the claims that the guest is to leave say so.
func (s *Step) mark(view View) {
	for _, m := range volumemigration.Moves(view.VMI) {
		if claim := view.Sources[m.From]; claim != nil && !volumemigration.IsLeftBy(claim, view.VMI) {
			s.Mark = append(s.Mark, claim)
		}
	}
}

// clear deletes the claims that a guest has left where the VM or their class wants that, and nothing speaks against it,
// in two looks. Until a claim is seen to go, the status says that it is left: who comes after a kill deletes it again.
func (s *Step) clear(view View) {
	left := volumemigration.LeftBy(&s.Status)
	if volumemigration.RecordOf(view.VM) != nil { // a migration may yet have the VM name them again
		s.RequeueAfter = again
		return
	}
	s.Seen = map[types.UID]Verdict{}
	left = slices.DeleteFunc(left, func(l volumemigration.Left) bool { return !s.stays(view, l) })
	s.Failed = volumemigration.SetLeft(&s.Status, left, view.Now)
}

// stays does what is to be done of a claim that a guest has left, and reports whether there is more to do.
func (s *Step) stays(view View, left volumemigration.Left) bool {
	is := view.Left[left.UID]
	switch {
	case is.Claim == nil || is.Claim.UID != left.UID || is.Claim.DeletionTimestamp != nil: // gone, or going
		return false
	case uses(view.VMI, left.Claim), view.VM == nil: // the guest came back to it, or nobody has a say
		return false
	case !volumemigration.DeletesClaims(view.VM, is.Class):
		return false
	}
	if why := kept(view, left, is); why != "" {
		s.keeps(left.Claim, why)
		return false
	}
	verdict := Verdict{is.Pod, view.Now}
	before, seen := view.Seen[left.UID]
	if seen = seen && before.Pod == is.Pod; seen {
		verdict.Since = before.Since
	}
	switch {
	case is.Pod != "" && !is.Ours:
		if !seen {
			s.keeps(left.Claim, "pod "+is.Pod+" uses it; it is deleted once the pod has ended")
		}
		s.lookAgain(inUse)
	default:
		if is.Pod == "" && view.Now.Sub(verdict.Since) >= again {
			s.Delete = append(s.Delete, object(is))
		}
		s.lookAgain(again)
	}
	s.Seen[left.UID] = verdict
	return true
}

func (s *Step) keeps(claim, why string) {
	s.Events = append(s.Events, notice{corev1.EventTypeWarning, reasonClaimKept, fmt.Sprintf(
		"Kept PersistentVolumeClaim %s, which the guest has left: %s", claim, why)})
}

func (s *Step) lookAgain(after time.Duration) {
	if s.RequeueAfter == 0 || after < s.RequeueAfter {
		s.RequeueAfter = after
	}
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

// kept returns why a claim that is to be deleted must not be. A pod that uses it is none of these.
func kept(view View, left volumemigration.Left, is LeftClaim) string {
	if !volumemigration.IsLeftBy(is.Claim, view.VMI) {
		return "its annotation " + volumemigration.LeftAnnotation + " does not say so"
	}
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
	for label := range is.Claim.Labels {
		if uploads.IsImage(label) {
			return "it is an image, by its label " + label
		}
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
