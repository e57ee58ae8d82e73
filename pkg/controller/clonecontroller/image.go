package clonecontroller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// A clone of an image makes a claim in its namespace whose disk is that of a claim in another one:
//
//	claim with an image ─► VolumeSnapshot ┐             VolumeSnapshot ─► claim
//	                                      └─ handle ────────┘
//
// The VolumeSnapshots are bound as those of a VM that is cloned across namespaces; see remote.go. They are deleted once
// the claim is bound.

// Image has the claims of a clone that copies an image.
type Image struct {
	// Source is the claim with the image, nil when there is none of that name.
	Source *corev1.PersistentVolumeClaim
	// Class is the VolumeSnapshotClass that snapshots it; Unclassed says why there is none.
	Class, Unclassed string
	// Origin is the VolumeSnapshot of it that the clone has made.
	Origin *snapshotsv1.VolumeSnapshot
	// Claim is the copy, nil when the clone has not made it. Other says that the claim of this name is another.
	Claim *corev1.PersistentVolumeClaim
	Other bool
}

// bound reports a copy that has its volume.
func (i *Image) bound() bool { return i.Claim != nil && i.Claim.Status.Phase == corev1.ClaimBound }

// image plans a clone of an image.
func (v *View) image() Step {
	c := v.Clone
	if c.DeletionTimestamp != nil {
		return v.endImage()
	}
	switch c.Status.Phase {
	case clonev1beta1.PhaseUnset:
		if c.Spec.Target == nil || c.Spec.Target.Name == "" { // what admission refuses
			return v.fail(reasonNotAdmitted, "the clone has no spec.target, the claim that it makes; make it anew")
		}
		return Step{Status: v.phase(clonev1beta1.SnapshotInProgress)}
	case clonev1beta1.SnapshotInProgress:
		return v.snapshotImage()
	case clonev1beta1.RestoreInProgress:
		return v.claimImage()
	case clonev1beta1.Succeeded:
		return v.cleanUpImage()
	case clonev1beta1.Failed:
		return v.discardImage()
	}
	return Step{}
}

// imageName is the name of the image's claim, for messages.
func (v *View) imageName() string {
	return "claim " + clones.SourceNamespace(v.Clone) + "/" + v.Clone.Spec.Source.Name
}

// originName is the name of the VolumeSnapshot of the image, for messages.
func (v *View) originName() string {
	return clones.SourceNamespace(v.Clone) + "/" + clones.OriginName(v.Clone)
}

// takenClaim returns the step of a clone whose claim cannot have its name.
func (v *View) takenClaim() Step {
	return v.fail(reasonTaken, fmt.Sprintf("claim %s/%s exists, and this clone did not make it; make a clone with "+
		"another spec.target.name", v.Clone.Namespace, v.Clone.Spec.Target.Name))
}

// snapshotImage plans the phase in which the clone's namespace has no VolumeSnapshot of the image yet.
func (v *View) snapshotImage() Step {
	c, image, remote := v.Clone, v.Image, v.Remote
	switch {
	case c.Annotations[clones.UIDAnnotation] == "" || clones.SourceNamespace(c) == c.Namespace:
		return v.fail(reasonNotAdmitted, fmt.Sprintf("virt-api has not admitted the clone of %s: the annotation %s is "+
			"missing; make the clone anew", v.imageName(), clones.UIDAnnotation))
	case image.Other:
		return v.takenClaim()
	case len(remote.Others) > 0:
		return v.fail(reasonObjectExists, fmt.Sprintf("%s exists, and this clone did not make it; delete it and make "+
			"another clone", strings.Join(remote.Others, ", ")))
	case !slices.Contains(c.Finalizers, clones.Finalizer):
		return Step{AddFinalizer: true}
	case c.Status.SnapshotName == nil:
		return v.beginImage()
	case image.Origin == nil || image.Origin.DeletionTimestamp != nil:
		return v.fail(reasonSnapshotDeleted, fmt.Sprintf("VolumeSnapshot %s does not exist anymore", v.originName()))
	}
	// A VolumeSnapshot names its claim by its name alone: it is of the image only if that is there still.
	if trouble := v.noImage(); trouble != "" {
		return v.fail(reasonNoSource, trouble)
	}
	if s := image.Origin.Status; s == nil || s.ReadyToUse == nil || !*s.ReadyToUse {
		text := fmt.Sprintf("VolumeSnapshot %s is not ready to use", v.originName())
		if s != nil && s.Error != nil && s.Error.Message != nil {
			text += ": " + *s.Error.Message
		}
		return v.waitFor(text)
	}
	creates, waits := v.copyVolumes()
	switch {
	case len(creates) > 0:
		return Step{Create: creates}
	case waits != "":
		return v.waitFor(waits)
	}
	return Step{Status: v.phase(clonev1beta1.RestoreInProgress), Events: []Event{{
		corev1.EventTypeNormal, reasonSnapshotReady,
		fmt.Sprintf("VolumeSnapshot %s for clone %s is ready to use", v.originName(), c.Name),
	}}}
}

// noImage returns why the source is not the image that the clone was admitted for, or "" when it is.
func (v *View) noImage() string {
	switch source := v.Image.Source; {
	case source == nil:
		return v.imageName() + " does not exist"
	case string(source.UID) != v.Clone.Annotations[clones.UIDAnnotation]:
		return v.imageName() + " is not the one that the clone was made for; make another clone"
	default:
		return clones.ImageTrouble(source)
	}
}

// beginImage has the image snapshotted, if it is the one that the clone was admitted for.
func (v *View) beginImage() Step {
	c, image := v.Clone, v.Image
	if trouble := v.noImage(); trouble != "" {
		return v.fail(reasonNoSource, trouble)
	}
	if image.Unclassed != "" {
		return v.waitFor(fmt.Sprintf("%s cannot be snapshotted: %s", v.imageName(), image.Unclassed))
	}
	if _, err := clones.ImageClaim(c, image.Source); err != nil {
		return v.fail(reasonRestoreFailed, fmt.Sprintf("annotation %s: %s", clones.SizeAnnotation, err))
	}
	status := v.phase(clonev1beta1.SnapshotInProgress)
	status.SnapshotName = new(clones.OriginName(c))
	step := Step{Status: status}
	if image.Origin == nil {
		step.Create = append(step.Create, v.newOrigin())
		step.Events = []Event{{
			corev1.EventTypeNormal, reasonSnapshotCreated,
			fmt.Sprintf("created VolumeSnapshot %s for clone %s", v.originName(), c.Name),
		}}
	}
	return step
}

func (v *View) newOrigin() *snapshotsv1.VolumeSnapshot {
	c := v.Clone
	return &snapshotsv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: clones.SourceNamespace(c), Name: clones.OriginName(c),
			Labels:      map[string]string{clones.UIDLabel: string(c.UID)},
			Annotations: map[string]string{clones.CloneAnnotation: c.Namespace + "/" + c.Name},
		},
		Spec: snapshotsv1.VolumeSnapshotSpec{
			Source:                  snapshotsv1.VolumeSnapshotSource{PersistentVolumeClaimName: &c.Spec.Source.Name},
			VolumeSnapshotClassName: &v.Image.Class,
		},
	}
}

// lostImage returns why the copy cannot be filled, or "" when it can.
func (v *View) lostImage() string {
	origin, copied := v.Image.Origin, v.Remote.Volumes[0].Copy
	if origin == nil || origin.DeletionTimestamp != nil {
		return fmt.Sprintf("VolumeSnapshot %s does not exist anymore", v.originName())
	}
	if copied == nil || copied.DeletionTimestamp != nil || v.Remote.Made[0] == nil {
		return fmt.Sprintf("VolumeSnapshot %s/%s does not exist anymore", v.Clone.Namespace,
			clones.VolumeName(v.Clone, 0))
	}
	return ""
}

// claimImage plans the phase in which the copy is made.
func (v *View) claimImage() Step {
	c, image := v.Clone, v.Image
	if image.Claim != nil {
		status := v.phase(clonev1beta1.Succeeded)
		status.TargetName = &image.Claim.Name
		return Step{Status: status, Events: []Event{{
			corev1.EventTypeNormal, reasonTargetCreated,
			fmt.Sprintf("created claim %s for clone %s", image.Claim.Name, c.Name),
		}}}
	}
	if lost := v.lostImage(); lost != "" {
		return v.fail(reasonSnapshotDeleted, lost)
	}
	if image.Other {
		return v.takenClaim()
	}
	if trouble := v.noImage(); trouble != "" {
		return v.fail(reasonNoSource, trouble)
	}
	claim, err := clones.ImageClaim(c, image.Source, restoreSize(image.Origin), restoreSize(v.Remote.Volumes[0].Copy))
	if err != nil {
		return v.fail(reasonRestoreFailed, fmt.Sprintf("annotation %s: %s", clones.SizeAnnotation, err))
	}
	step := Step{}
	step.Create = append(step.Create, claim)
	return step
}

// restoreSize returns what a VolumeSnapshot says that a claim made of it needs, nil when it says nothing.
func restoreSize(s *snapshotsv1.VolumeSnapshot) *resource.Quantity {
	if s.Status == nil {
		return nil
	}
	return s.Status.RestoreSize
}

// cleanUpImage removes the VolumeSnapshots once the claim is bound, and the clone when its claim is gone.
func (v *View) cleanUpImage() Step {
	c, image := v.Clone, v.Image
	if image.Claim == nil {
		return Step{DeleteClone: true}
	}
	if c.Status.SnapshotName == nil {
		return Step{}
	}
	if !image.bound() {
		if lost := v.lostImage(); lost != "" {
			return Step{Status: v.saying(fmt.Sprintf("claim %s cannot be filled: %s; delete it and clone anew",
				image.Claim.Name, lost))}
		}
		return Step{} // the event of its volume comes
	}
	if step := v.discardImage(); step.deletes() || step.RemoveFinalizer {
		return step
	}
	status := v.phase(clonev1beta1.Succeeded)
	status.SnapshotName = nil
	return Step{Status: status, Events: []Event{{
		corev1.EventTypeNormal, reasonPVCBound, fmt.Sprintf("all PVC for clone %s are bound", c.Name),
	}}}
}

// discardImage removes the VolumeSnapshots, the copy first, and then the finalizer.
func (v *View) discardImage() Step {
	step := Step{}
	if copied := v.Remote.Volumes[0].Copy; copied != nil && copied.DeletionTimestamp == nil {
		step.DeleteVolumes = append(step.DeleteVolumes, copied)
		return step
	}
	for _, n := range slices.Sorted(maps.Keys(v.Remote.Made)) {
		if o := v.Remote.Made[n]; o.DeletionTimestamp == nil {
			step.DeleteContents = append(step.DeleteContents, o)
		}
	}
	if len(step.DeleteContents) > 0 {
		return step
	}
	if origin := v.Image.Origin; origin != nil && origin.DeletionTimestamp == nil {
		step.DeleteVolumes = append(step.DeleteVolumes, origin)
		return step
	}
	step.RemoveFinalizer = slices.Contains(v.Clone.Finalizers, clones.Finalizer)
	return step
}

// endImage releases a clone that is deleted. One whose claim has no volume yet waits for it, since what fills the claim
// would be gone.
func (v *View) endImage() Step {
	claim := v.Image.Claim
	if claim != nil && claim.DeletionTimestamp == nil && !v.Image.bound() && v.lostImage() == "" {
		return Step{Status: v.saying(fmt.Sprintf("the clone is deleted once claim %s is bound; start the VM that has "+
			"it, or delete the claim", claim.Name))}
	}
	return v.discardImage()
}
