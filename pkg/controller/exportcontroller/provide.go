package exportcontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// provide sees that the claims are there and may be read. It says in the status why they are not.
func (v *View) provide(step *Step) bool {
	switch exports.SourceKind(&v.Export.Spec.Source) {
	case exports.KindVM:
		return v.provideVM(step)
	case exports.KindSnapshot:
		return v.provideSnapshot(step)
	case exports.KindClaim:
		return v.provideClaim(step)
	}
	step.Status.Phase = v1beta1.Skipped
	source := v.Export.Spec.Source
	return v.wait(step, exports.ReasonUnknown, "%s %s is nothing that can be exported", source.Kind, source.Name)
}

func (v *View) provideVM(step *Step) bool {
	name := v.Export.Namespace + "/" + v.Export.Spec.Source.Name
	switch {
	case v.VM == nil:
		return v.wait(step, exports.ReasonVMNotFound, "Virtual Machine %s not found", name)
	case len(v.Claims) == 0:
		step.Status.Phase = v1beta1.Skipped
		return v.wait(step, exports.ReasonNoVolumes, "Virtual Machine %s has no volumes", name)
	}
	v.sayBound(step)
	if unready := v.unready(); unready != "" {
		step.RequeueAfter = min(step.RequeueAfter, again)
		return v.wait(step, exports.ReasonNotPopulated, "Not all volumes in the Virtual Machine %s are populated: %s",
			name, unready)
	}
	if v.Running {
		return v.wait(step, exports.ReasonInUse, "Virtual Machine %s is running", name)
	}
	return v.unused(step)
}

func (v *View) provideClaim(step *Step) bool {
	name := v.Export.Namespace + "/" + v.Export.Spec.Source.Name
	if len(v.Claims) == 0 || v.Claims[0].Claim == nil {
		v.set(step.Status, v1beta1.ConditionPVC, corev1.ConditionFalse, exports.ReasonClaimNotFound,
			fmt.Sprintf("PersistentVolumeClaim %s not found", name))
		return v.wait(step, exports.ReasonInitializing, "")
	}
	v.sayBound(step)
	if unready := v.unready(); unready != "" {
		step.RequeueAfter = min(step.RequeueAfter, again)
		return v.wait(step, exports.ReasonClaimPending, "PersistentVolumeClaim %s is not populated: %s", name, unready)
	}
	return v.unused(step)
}

// unready returns why a claim is not a complete disk, or "" when all are.
func (v *View) unready() string {
	for i := range v.Claims {
		claim := &v.Claims[i]
		switch {
		case claim.Claim == nil:
			return fmt.Sprintf("PersistentVolumeClaim %s is not there", claim.Volume.Claim)
		case claim.Claim.DeletionTimestamp != nil:
			return fmt.Sprintf("PersistentVolumeClaim %s is being deleted", claim.Volume.Claim)
		case claim.Unready != "":
			return claim.Unready
		case claim.Claim.Status.Phase == corev1.ClaimPending:
			return fmt.Sprintf("PersistentVolumeClaim %s is not bound; where its StorageClass waits for a first "+
				"consumer, start the VM once", claim.Volume.Claim)
		case claim.Claim.Status.Phase != corev1.ClaimBound:
			return fmt.Sprintf("PersistentVolumeClaim %s is not bound", claim.Volume.Claim)
		}
	}
	return ""
}

// unused waits for other pods that use the claims, and looks for new ones from time to time.
func (v *View) unused(step *Step) bool {
	for i := range v.Claims {
		if user := v.Claims[i].User; user != "" {
			step.RequeueAfter = min(step.RequeueAfter, again)
			return v.wait(step, exports.ReasonInUse, "PersistentVolumeClaim %s/%s is in use by pod %s",
				v.Export.Namespace, v.Claims[i].Volume.Claim, user)
		}
	}
	step.RequeueAfter = min(step.RequeueAfter, watchful)
	return true
}

// sayBound sets the condition about the claims, which is the condition of the worst claim.
func (v *View) sayBound(step *Step) {
	is, reason := corev1.ConditionTrue, exports.ReasonClaimBound
	for i := range v.Claims {
		claim := v.Claims[i].Claim
		switch {
		case claim == nil:
			is, reason = corev1.ConditionFalse, exports.ReasonClaimNotFound
		case claim.Status.Phase == corev1.ClaimLost:
			is, reason = corev1.ConditionFalse, exports.ReasonUnknown
		case claim.Status.Phase != corev1.ClaimBound && is == corev1.ConditionTrue:
			is, reason = corev1.ConditionFalse, exports.ReasonClaimPending
		}
	}
	v.set(step.Status, v1beta1.ConditionPVC, is, reason, "")
}

func (v *View) provideSnapshot(step *Step) bool {
	name := v.Export.Namespace + "/" + v.Export.Spec.Source.Name
	created := func(reason, format string, arguments ...any) bool {
		message := fmt.Sprintf(format, arguments...)
		v.set(step.Status, v1beta1.ConditionVolumesCreated, corev1.ConditionFalse, reason, message)
		return v.wait(step, exports.ReasonInitializing, "%s", message)
	}
	switch {
	case v.Snapshot == nil:
		created(exports.ReasonNoVolumeSnapshot, "VirtualMachineSnapshot %s not found", name)
		return v.wait(step, exports.ReasonSnapshotNotFound, "VirtualMachineSnapshot %s not found", name)
	case !readyToUse(v.Snapshot) || v.Content == nil:
		return created(exports.ReasonNotAllClaimsCreated, "VirtualMachineSnapshot %s is not ready to use", name)
	case len(v.Claims) == 0:
		step.Status.Phase = v1beta1.Skipped
		return created(exports.ReasonNoVolumeSnapshot,
			"VirtualMachineSnapshot %s does not contain any volume snapshots", name)
	case !v.Served:
		return created(exports.ReasonNotAllClaimsCreated, "the cluster has no VolumeSnapshots")
	}
	bound := true
	for i := range v.Claims {
		claim := &v.Claims[i]
		switch {
		case claim.Claim == nil && !claim.Restorable:
			return created(exports.ReasonNotAllClaimsCreated, "the VolumeSnapshot of volume %s is not there",
				claim.Backup.VolumeName)
		case claim.Claim == nil:
			step.CreateClaims = append(step.CreateClaims, v.restored(claim))
			bound = false
		case !v.ours(claim.Claim):
			step.CreateClaims = nil
			return created(exports.ReasonNotAllClaimsCreated,
				"PersistentVolumeClaim %s is there and not of this export: delete it, or make an export of another "+
					"name",
				claim.Volume.Claim)
		case claim.Claim.DeletionTimestamp != nil:
			return created(exports.ReasonNotAllClaimsCreated, "PersistentVolumeClaim %s is being deleted",
				claim.Volume.Claim)
		case claim.Claim.Status.Phase != corev1.ClaimBound:
			bound = false
		}
	}
	if bound {
		v.set(step.Status, v1beta1.ConditionVolumesCreated, corev1.ConditionTrue, exports.ReasonAllClaimsReady, "")
	} else {
		v.set(step.Status, v1beta1.ConditionVolumesCreated, corev1.ConditionFalse, exports.ReasonNotAllClaimsReady,
			"Not all PVCs are ready")
	}
	return true // a claim may be bound only when the pod is to use it
}

func readyToUse(snapshot *snapshotv1beta1.VirtualMachineSnapshot) bool {
	return snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse
}
