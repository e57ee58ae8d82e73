package restorecontroller

import (
	"bytes"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// finish plans the second phase: the target is restored, and what belongs to it follows. It does not need the snapshot
// any more.
func (v *View) finish() Step {
	step := Step{}
	step.RequeueAfter = frame.CatchUp // not all that is written has an event
	v.moveState(&step)
	v.own(&step)
	v.markKept(&step)
	if len(step.ChangeClaims)+len(step.ChangeDataVolumes)+len(step.ChangeRevisions) > 0 {
		return step
	}
	for _, name := range v.Restore.Status.DeletedDataVolumes {
		if dv := v.DataVolumes[name]; dv != nil && dv.DeletionTimestamp == nil && v.keptBy(name) == "" {
			step.DeleteDataVolumes = append(step.DeleteDataVolumes, dv)
		}
	}
	for _, claim := range v.Replaced {
		if claim.DeletionTimestamp == nil && v.keptBy(claim.Name) == "" {
			step.DeleteClaims = append(step.DeleteClaims, claim)
		}
	}
	if len(step.DeleteDataVolumes)+len(step.DeleteClaims) > 0 {
		return step
	}
	step = Step{Release: v.held(), Done: v.complete()}
	step.Events = []Event{{
		corev1.EventTypeNormal, reasonComplete,
		"Successfully completed VirtualMachineRestore " + v.Restore.Name,
	}}
	if text := v.spared(); text != "" {
		step.Events = append(step.Events, Event{corev1.EventTypeWarning, reasonNotDeleted, text})
	}
	if v.Restore.DeletionTimestamp != nil {
		step.RemoveFinalizer = true
	}
	return step
}

// keptBy returns who uses a claim that only the old VM had, or the claim of such a DataVolume, which has its name: it
// is not deleted then. It returns "" when no other VM does and no VMI.
func (v *View) keptBy(claim string) string {
	return snapshots.KeptBy(claim, v.Restore.Spec.Target.Name, v.Users)
}

// isSpared reports a DataVolume of the old VM's templates that is not deleted.
func (v *View) isSpared(name string) bool {
	dv := v.DataVolumes[name]
	return dv != nil && dv.DeletionTimestamp == nil && v.keptBy(name) != ""
}

// spared returns what of the old VM is not deleted, and why, or "".
func (v *View) spared() string {
	var parts []string
	for _, name := range v.Restore.Status.DeletedDataVolumes {
		if v.isSpared(name) {
			parts = append(parts, fmt.Sprintf("DataVolume %s, whose PVC is used by %s", name, v.keptBy(name)))
		}
	}
	for _, claim := range v.Replaced {
		if by := v.keptBy(claim.Name); claim.DeletionTimestamp == nil && by != "" {
			parts = append(parts, fmt.Sprintf("PVC %s, which is used by %s", claim.Name, by))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("VM %s does not have these any more, and they are not deleted: %s", v.VM.Name,
		strings.Join(parts, "; "))
}

// replacedValue returns the value of replacedLabel on claims of the target.
func replacedValue(vm string) string { return names.LabelValue(vmstate.Prefix + "-" + vm) }

// moveState makes the restored claim of the target's state the one that the target has, and the one before one that is
// deleted at the end. That a state was restored decides, not the target's template: a preference may ask for the TPM.
func (v *View) moveState(step *Step) {
	var next *corev1.PersistentVolumeClaim
	for _, o := range v.Restore.Status.Restores {
		if isState(o.VolumeName) {
			next = v.Made[o.PersistentVolumeClaimName]
		}
	}
	if next == nil {
		return
	}
	for _, claim := range v.States {
		if claim.UID == next.UID || claim.DeletionTimestamp != nil {
			continue
		}
		step.ChangeClaims = append(step.ChangeClaims, Change[*corev1.PersistentVolumeClaim]{claim, v.release(claim)})
	}
	if label := names.LabelValue(v.VM.Name); next.Labels[vmstate.Prefix] != label {
		after := next.DeepCopy()
		metav1.SetMetaDataLabel(&after.ObjectMeta, vmstate.Prefix, label)
		delete(after.Labels, snapshots.KeptLabel)
		step.ChangeClaims = append(step.ChangeClaims, Change[*corev1.PersistentVolumeClaim]{next, after})
	}
}

// own gives the target what was made for it before it existed: claims, DataVolumes and ControllerRevisions.
func (v *View) own(step *Step) {
	vm := v.VM
	for _, o := range v.Restore.Status.Restores {
		claim := v.Made[o.PersistentVolumeClaimName]
		if claim != nil && owns(v.Restore) && claim.Annotations[ownedAnnotation] == v.Restore.Name {
			after := claim.DeepCopy()
			delete(after.Annotations, ownedAnnotation)
			if len(after.OwnerReferences) == 0 {
				after.OwnerReferences = withOwner(nil, vm)
			}
			step.ChangeClaims = append(step.ChangeClaims, Change[*corev1.PersistentVolumeClaim]{claim, after})
		}
		if o.DataVolumeName == nil || !owns(v.Restore) {
			continue
		}
		dv := v.DataVolumes[*o.DataVolumeName]
		if dv != nil && dv.Annotations[NameAnnotation] == v.Restore.Name && len(dv.OwnerReferences) == 0 {
			after := dv.DeepCopy()
			after.OwnerReferences = withOwner(nil, vm)
			after.Labels = maps.Clone(after.Labels)
			metav1.SetMetaDataLabel(&after.ObjectMeta, v1.CreatedByLabel, string(vm.UID))
			step.ChangeDataVolumes = append(step.ChangeDataVolumes, Change[*cdiv1.DataVolume]{dv, after})
		}
	}
	for _, name := range instancetype.RevisionNames(&vm.Spec) {
		revision := v.Revisions[name]
		if revision == nil || metav1.GetControllerOfNoCopy(revision) != nil {
			continue
		}
		after := revision.DeepCopy()
		after.OwnerReferences = withOwner(after.OwnerReferences, vm)
		step.ChangeRevisions = append(step.ChangeRevisions, Change[*appsv1.ControllerRevision]{revision, after})
	}
}

// revise has the restored VM refer to ControllerRevisions of its own, which are as the snapshot's. One that is there
// already may be what the VM before the restore refers to, so it is not replaced.
func (v *View) revise(vm *v1.VirtualMachine, step *Step) (trouble string) {
	own := func(name string) string {
		return snapshots.RevisionName(name, v.Restore.Spec.VirtualMachineSnapshotName, vm.Name)
	}
	for _, name := range instancetype.RevisionNames(&vm.Spec) {
		kept, there := v.Revisions[name], v.Revisions[own(name)]
		switch {
		case kept == nil:
			return fmt.Sprintf("Unable to find ControllerRevision %s/%s", vm.Namespace, name)
		case own(name) == name:
		case there == nil:
			revision := &appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: vm.Namespace, Name: own(name), Labels: maps.Clone(kept.Labels),
				},
				Data: *kept.Data.DeepCopy(), Revision: kept.Revision,
			}
			if v.VM != nil {
				revision.OwnerReferences = withOwner(nil, v.VM)
			}
			step.CreateRevisions = append(step.CreateRevisions, revision)
		case !bytes.Equal(there.Data.Raw, kept.Data.Raw) && !instancetype.SameRevision(there, kept):
			return fmt.Sprintf("ControllerRevision %s/%s exists with other data than the snapshot's %s; delete it",
				vm.Namespace, own(name), name)
		}
	}
	instancetype.RenameRevisions(&vm.Spec, own)
	return ""
}
