package restorecontroller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// strange are the beginnings of annotations that a restored claim does not take over: they say how the old one was
// made.
var strange = []string{
	"pv.kubernetes.io", "volume.beta.kubernetes.io", "cdi.kubevirt.io", "volume.kubernetes.io", "k8s.io/CloneRequest",
	"k8s.io/CloneOf",
}

// overrideOf returns what the restore says about a volume in particular.
func overrideOf(r *v1beta1.VirtualMachineRestore, volume string) v1beta1.VolumeRestoreOverride {
	for _, o := range r.Spec.VolumeRestoreOverrides {
		if o.VolumeName == volume {
			return o
		}
	}
	return v1beta1.VolumeRestoreOverride{}
}

// restoredName returns the name of the restored claim of a volume whose claim had that name.
func restoredName(r *v1beta1.VirtualMachineRestore, volume, claim string) string {
	for _, o := range r.Spec.VolumeRestoreOverrides {
		if o.VolumeName == volume && o.RestoreName != "" {
			return o.RestoreName
		}
	}
	switch policy(r) {
	case v1beta1.VolumeRestorePolicyInPlace:
		return claim
	case v1beta1.VolumeRestorePolicyPrefixTargetName:
		return snapshots.PrefixedName(r.Spec.Target.Name, volume)
	}
	return fmt.Sprintf("restore-%s-%s", r.UID, volume)
}

// restores returns the status's list of volumes; what it already says about a volume stays.
func (v *View) restores() []v1beta1.VolumeRestore {
	var out []v1beta1.VolumeRestore
	for i := range v.Volumes {
		backup := &v.Volumes[i].Backup
		next := v1beta1.VolumeRestore{
			VolumeName: backup.VolumeName, VolumeSnapshotName: *backup.VolumeSnapshotName,
			PersistentVolumeClaimName: restoredName(v.Restore, backup.VolumeName, backup.PersistentVolumeClaim.Name),
		}
		for _, o := range v.Restore.Status.Restores {
			if o.VolumeName == next.VolumeName {
				next = o
			}
		}
		out = append(out, next)
	}
	return out
}

// provide sees that all claims are there; done when they are, and are good.
func (v *View) provide() (step Step, done bool) {
	waiting := false
	for i := range v.Volumes {
		o := &v.Volumes[i]
		entry := &v.Restore.Status.Restores[i]
		switch trouble := v.strangers(o, entry); {
		case trouble != "":
			return v.stuck(trouble), false
		case o.Claim == nil:
			step.CreateClaims = append(step.CreateClaims, v.claim(o, entry))
		case o.Claim.DeletionTimestamp != nil:
			waiting = true
		case !marked(v.Restore, o.Claim):
			if v.replace(&step, o, i) {
				return step, false
			}
		case o.Claim.Status.Phase == corev1.ClaimBound:
		case o.Claim.Status.Phase == corev1.ClaimPending || o.Claim.Status.Phase == "":
			waiting = waiting || !o.Late
		default:
			claim := o.Claim
			return v.stuck(fmt.Sprintf("PVC %s/%s in status %q", claim.Namespace, claim.Name, claim.Status.Phase)),
				false
		}
	}
	if !waiting && len(step.CreateClaims)+len(step.DeleteClaims) == 0 {
		return Step{}, true
	}
	step.Status = v.status(textCreating, textWaiting)
	return step, false
}

// strangers returns why an existing claim may not be replaced that the restore has neither made nor replaces in place.
func (v *View) strangers(o *Volume, entry *v1beta1.VolumeRestore) string {
	if o.Claim == nil || marked(v.Restore, o.Claim) {
		return ""
	}
	if v.replaces(o) {
		return ""
	}
	return fmt.Sprintf("PVC %s/%s exists, and this restore did not make it; delete the restore and make another, with "+
		"another volumeRestorePolicy or with another name in spec.volumeRestoreOverrides for volume %s",
		o.Claim.Namespace, o.Claim.Name, entry.VolumeName)
}

// replaces reports a volume whose claim a restore in place has to delete.
func (v *View) replaces(o *Volume) bool {
	return v.inPlace() && o.Claim != nil && !marked(v.Restore, o.Claim) &&
		o.Claim.Name == o.Backup.PersistentVolumeClaim.Name
}

// asksForUsers reports that it matters who uses the claims of the namespace: some are to be deleted, or the target gets
// those back that it had.
func (v *View) asksForUsers() bool {
	if v.committed() {
		return len(v.Restore.Status.DeletedDataVolumes)+len(v.Replaced) > 0
	}
	return v.Former != nil || slices.ContainsFunc(v.Volumes, func(o Volume) bool { return v.replaces(&o) })
}

// used returns why a claim is not replaced in place: others use it. lasting is false when only pods do, which end by
// themselves.
func (v *View) used() (trouble string, lasting bool) {
	for i := range v.Volumes {
		if o := &v.Volumes[i]; v.replaces(o) && !lasting {
			text, keeps := snapshots.InUse(o.Claim.Namespace, o.Claim.Name, v.Restore.Spec.Target.Name, v.Users)
			if text != "" && (trouble == "" || keeps) {
				trouble, lasting = text, keeps
			}
		}
	}
	return trouble, lasting
}

// replace has a claim deleted, whose name the restored one will have. That a DataVolume owned it is
// noted first, which is the whole step then.
func (v *View) replace(step *Step, o *Volume, i int) (noted bool) {
	owner := metav1.GetControllerOfNoCopy(o.Claim)
	if owner != nil && owner.Kind == "DataVolume" && o.DataVolume != nil && owner.UID == o.DataVolume.UID {
		status := v.status(textCreating, textWaiting)
		if entry := &status.Restores[i]; entry.DataVolumeName == nil {
			entry.DataVolumeName = &owner.Name
			*step = Step{Status: status}
			return true
		}
		// CDI leaves a DataVolume alone that is populated.
		if after := o.DataVolume.DeepCopy(); after.Annotations[cdiv1.AnnPrePopulated] == "" {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, NameAnnotation, v.Restore.Name)
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, cdiv1.AnnPrePopulated, owner.Name)
			step.ChangeDataVolumes = append(step.ChangeDataVolumes, Change[*cdiv1.DataVolume]{o.DataVolume, after})
		}
	}
	step.DeleteClaims = append(step.DeleteClaims, o.Claim)
	return false
}

// claim returns the claim of a volume, to be filled from its snapshot: as the one that was snapshotted, and at least as
// large as the snapshot asks for.
func (v *View) claim(o *Volume, entry *v1beta1.VolumeRestore) *corev1.PersistentVolumeClaim {
	source := o.Backup.PersistentVolumeClaim.DeepCopy()
	group := snapshotsv1.GroupName
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Restore.Namespace, Name: entry.PersistentVolumeClaimName,
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: source.Spec.AccessModes, Resources: source.Spec.Resources,
			StorageClassName: source.Spec.StorageClassName, VolumeMode: source.Spec.VolumeMode,
			DataSource: &corev1.TypedLocalObjectReference{
				APIGroup: &group, Kind: "VolumeSnapshot", Name: entry.VolumeSnapshotName,
			},
		},
	}
	if least := o.Snapshot.Status.RestoreSize; least != nil {
		size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if !ok || size.Cmp(*least) < 0 {
			if claim.Spec.Resources.Requests == nil {
				claim.Spec.Resources.Requests = corev1.ResourceList{}
			}
			claim.Spec.Resources.Requests[corev1.ResourceStorage] = *least
		}
	}
	maps.Copy(claim.Labels, source.Labels)
	if !v.inPlace() { // a claim of another name is no image of a catalogue: the image is the one that was snapshotted
		maps.DeleteFunc(claim.Labels, func(label, _ string) bool { return uploads.IsImage(label) })
	}
	switch {
	case v.VM == nil && isState(entry.VolumeName):
		claim.Labels[vmstate.Prefix] = names.LabelValue(v.Restore.Spec.Target.Name)
	case !v.inPlace():
		delete(claim.Labels, vmstate.Prefix) // until the commit the state is another claim's
	}
	of := v.Content.Spec.Source.VirtualMachine
	claim.Labels[SourceLabel], claim.Labels[NamespaceLabel] = names.LabelValue(of.Name), of.Namespace
	maps.Copy(claim.Annotations, source.Annotations)
	uploads.Copied(claim.Annotations)
	if !v.inPlace() {
		delete(claim.Annotations, uploads.AnnotationImage)
	}
	maps.DeleteFunc(claim.Annotations, func(key, _ string) bool {
		return slices.ContainsFunc(strange, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	override := overrideOf(v.Restore, entry.VolumeName)
	maps.Copy(claim.Labels, override.Labels)
	maps.Copy(claim.Annotations, override.Annotations)
	claim.Annotations[NameAnnotation], claim.Annotations[LastAnnotation] = v.Restore.Name, mark(v.Restore)
	v.ownClaim(claim, source, entry)
	return claim
}

// ownClaim makes a new claim belong to its DataVolume, or to the target, where that is wanted.
func (v *View) ownClaim(
	claim *corev1.PersistentVolumeClaim, source *v1beta1.PersistentVolumeClaim, entry *v1beta1.VolumeRestore,
) {
	of := v.Content.Spec.Source.VirtualMachine
	switch {
	case entry.DataVolumeName != nil && v.CDI:
		claim.Annotations[populatedFor] = *entry.DataVolumeName
	case !owns(v.Restore):
	case v.VM != nil:
		claim.OwnerReferences = []metav1.OwnerReference{ownerOf(v.VM)}
	case slices.ContainsFunc(source.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "VirtualMachine" && o.Name == of.Name && o.UID == of.UID
	}):
		claim.Annotations[ownedAnnotation] = v.Restore.Name
	default:
		delete(claim.Annotations, ownedAnnotation)
	}
}

func ownerOf(vm *v1.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)
}

// adoptClaims makes the claims of dataVolumeTemplates DataVolumes. It is done when they all are, and when it is
// recorded which DataVolumes the target will lose. Without CDI, the claims are all that there is.
func (v *View) adoptClaims() (step Step, done bool) {
	status := v.status(textUpdating, textAwaiting)
	waiting := false
	for i := range v.Volumes {
		o := &v.Volumes[i]
		template := v.template(o.Backup.VolumeName)
		if template == nil || !v.CDI {
			continue
		}
		entry := &status.Restores[i]
		name := restoredName(v.Restore, entry.VolumeName, template.Name)
		entry.DataVolumeName = &name
		dv := v.DataVolumes[name]
		switch {
		case dv != nil:
			state := claims.StateOf(dv)
			waiting = waiting || state == claims.Filling || state == claims.Failed
		case o.Claim.Annotations[populatedFor] != name || len(o.Claim.OwnerReferences) > 0:
			after := o.Claim.DeepCopy()
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, populatedFor, name)
			after.OwnerReferences = nil // CDI gives it to the DataVolume
			step.ChangeClaims = append(step.ChangeClaims, Change[*corev1.PersistentVolumeClaim]{o.Claim, after})
		default:
			step.CreateDataVolumes = append(step.CreateDataVolumes, v.dataVolume(name, template, o.Claim))
		}
	}
	status.DeletedDataVolumes = v.obsolete(status.Restores)
	step.Status = status
	changes := len(step.ChangeClaims) + len(step.CreateDataVolumes)
	return step, !waiting && changes == 0 &&
		slices.EqualFunc(status.Restores, v.Restore.Status.Restores, sameRestore) &&
		slices.Equal(status.DeletedDataVolumes, v.Restore.Status.DeletedDataVolumes)
}

func sameRestore(a, b v1beta1.VolumeRestore) bool {
	return a.VolumeName == b.VolumeName && a.PersistentVolumeClaimName == b.PersistentVolumeClaimName &&
		(a.DataVolumeName == nil) == (b.DataVolumeName == nil) &&
		(a.DataVolumeName == nil || *a.DataVolumeName == *b.DataVolumeName)
}

// template returns the dataVolumeTemplate of a volume of the snapshot, nil when it has none.
func (v *View) template(volume string) *v1.DataVolumeTemplateSpec {
	spec := &v.Content.Spec.Source.VirtualMachine.Spec
	for i := range spec.Template.Spec.Volumes {
		o := &spec.Template.Spec.Volumes[i]
		if o.Name != volume || o.DataVolume == nil {
			continue
		}
		for j := range spec.DataVolumeTemplates {
			if spec.DataVolumeTemplates[j].Name == o.DataVolume.Name {
				return &spec.DataVolumeTemplates[j]
			}
		}
	}
	return nil
}

// obsolete returns the DataVolumes of the target's templates that the restored VM has no template for.
func (v *View) obsolete(restores []v1beta1.VolumeRestore) []string {
	if v.VM == nil || v.keeps() {
		return nil
	}
	var out []string
	after := v.templates(restores)
	for i := range v.VM.Spec.DataVolumeTemplates {
		name := v.VM.Spec.DataVolumeTemplates[i].Name
		if !slices.ContainsFunc(after, func(t v1.DataVolumeTemplateSpec) bool { return t.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}
