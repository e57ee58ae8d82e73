package restorecontroller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// again is the delay before the next look at what sends no event.
const again = 5 * time.Second

// Next returns the writes that take a restore from what view shows to its next state.
func Next(view View) Step {
	v, r := &view, view.Restore
	if r.DeletionTimestamp != nil {
		return v.end()
	}
	if r.Status == nil {
		return Step{Status: v.initial()}
	}
	if snapshots.RestoreEnded(r) {
		return Step{Release: v.held()}
	}
	if !slices.Contains(r.Finalizers, Finalizer) || len(r.OwnerReferences) == 0 && v.VM != nil {
		return Step{Prepare: true}
	}
	if v.committed() {
		return v.finish()
	}
	if gone := v.gone(); gone != "" {
		return v.giveUp(gone)
	}
	if used, lasting := v.used(); lasting && !v.begun() {
		return v.giveUp(used)
	}
	if v.VM != nil && v.VMI != nil {
		return v.awaitTarget()
	}
	if snapshots.Undoes(r) != "" {
		return v.undo()
	}
	return v.restore()
}

// gone returns why a restore has no snapshot: it does not exist any more, or has not appeared in the time that a target
// has to be stopped. It returns "" otherwise, and for a restore that has begun to replace claims, which goes on.
func (v *View) gone() string {
	seen := len(v.Restore.Status.Restores) > 0
	late := v.Now.After(v.Restore.CreationTimestamp.Add(v1beta1.DefaultGracePeriod))
	if v.Snapshot != nil || snapshots.Undoes(v.Restore) != "" || !seen && !late || v.begun() {
		return ""
	}
	return v.unusable()
}

// restore plans the first phase.
func (v *View) restore() Step {
	if trouble := v.trouble(); trouble != "" {
		return v.stuck(trouble)
	}
	if trouble := v.unpatchable(); trouble != "" {
		return v.giveUp(trouble)
	}
	if v.VM != nil && !snapshots.Restoring(v.VM) {
		return Step{Hold: true}
	}
	if wanted := v.restores(); !equality.Semantic.DeepEqual(v.Restore.Status.Restores, wanted) {
		status := v.status(textCreating, textWaiting)
		status.Restores = wanted
		return Step{Status: status, Rehearse: v.rehearsed(wanted)}
	}
	step, done := v.provide()
	if !done {
		return step
	}
	if step, done = v.adoptClaims(); !done {
		return step
	}
	return v.commit()
}

// trouble returns why the restore cannot go on before anything of the target changes, or "" when it can.
func (v *View) trouble() string {
	r := v.Restore
	if r.Spec.Target.Kind != "VirtualMachine" {
		return fmt.Sprintf("unknown source %+v", r.Spec.Target)
	}
	if trouble := v.unusable(); trouble != "" {
		return trouble
	}
	if vm := v.VM; vm != nil {
		other := v.Snapshot.Status.SourceUID
		kind, holder := snapshots.Holder(vm, r.Name)
		switch {
		case vm.DeletionTimestamp != nil:
			return fmt.Sprintf("VM %s is being deleted", vm.Name)
		case other != nil && *other != vm.UID:
			return textOtherTarget
		case kind != "":
			return fmt.Sprintf(textHeld, kind, holder)
		}
	}
	if v.inPlace() && v.keeps() {
		return "volumeRestorePolicy InPlace cannot keep the claims that it replaces; choose another volumeRestorePolicy"
	}
	if v.inPlace() && v.VM == nil && v.SourceExists {
		return fmt.Sprintf("volumeRestorePolicy InPlace would replace the disks of VM %s; restore to it, or choose "+
			"another volumeRestorePolicy", v.Content.Spec.Source.VirtualMachine.Name)
	}
	used, _ := v.used()
	return used
}

// unusable returns why the snapshot cannot be restored.
func (v *View) unusable() string {
	r, snapshot := v.Restore, v.Snapshot
	name := r.Namespace + "/" + r.Spec.VirtualMachineSnapshotName
	switch {
	case snapshot == nil:
		return fmt.Sprintf("VMSnapshot %s does not exist", name)
	case snapshot.Status != nil && snapshot.Status.Phase == v1beta1.Failed:
		return fmt.Sprintf("VMSnapshot %s failed and is invalid to use", name)
	case !snapshots.Restorable(snapshot):
		return fmt.Sprintf("VMSnapshot %s not ready", name)
	case snapshot.Status.VirtualMachineSnapshotContentName == nil:
		return fmt.Sprintf("no snapshot content name in %s", name)
	}
	content, name := v.Content, r.Namespace+"/"+*snapshot.Status.VirtualMachineSnapshotContentName
	switch {
	case content == nil:
		return fmt.Sprintf("VMSnapshotContent %s does not exist", name)
	case !snapshots.ContentRestorable(content):
		return fmt.Sprintf("VMSnapshotContent %s not ready", name)
	case content.Spec.Source.VirtualMachine == nil || content.Spec.Source.VirtualMachine.Spec.Template == nil:
		return "unexpected snapshot source"
	case !v.Served && len(v.Volumes) > 0:
		return "the cluster has no VolumeSnapshots; install the CSI snapshot controller and its definitions"
	}
	for i := range v.Volumes {
		if trouble := v.Volumes[i].unusable(); trouble != "" {
			return trouble
		}
	}
	return ""
}

// unusable returns why a VolumeSnapshot cannot be restored.
func (o *Volume) unusable() string {
	if o.Backup.VolumeSnapshotName == nil {
		return fmt.Sprintf("VolumeSnapshotName missing for volume %s", o.Backup.VolumeName)
	}
	name, snapshot := *o.Backup.VolumeSnapshotName, o.Snapshot
	switch {
	case snapshot == nil:
		return "missing volumeSnapshot " + name
	case snapshot.DeletionTimestamp != nil:
		return fmt.Sprintf("volumeSnapshot %s is being deleted", name)
	case snapshot.Status == nil || !isTrue(snapshot.Status.ReadyToUse):
		return fmt.Sprintf("volumeSnapshot %s is not ready to use", name)
	}
	return ""
}

// awaitTarget returns the step of a restore whose target has a guest still.
func (v *View) awaitTarget() Step {
	policy := v1beta1.VirtualMachineRestoreWaitGracePeriodAndFail
	if v.Restore.Spec.TargetReadinessPolicy != nil {
		policy = *v.Restore.Spec.TargetReadinessPolicy
	}
	// Once the old VM is not whole any more, the restore goes on when the guest has ended, or is stopped.
	if v.begun() && policy != v1beta1.VirtualMachineRestoreStopTarget {
		policy = v1beta1.VirtualMachineRestoreWaitEventually
	}
	wait := func(text, event string) Step {
		status := v.Restore.Status.DeepCopy()
		v.say(status, corev1.ConditionFalse, text, text)
		step := Step{Status: status}
		if v.saysNot(text) {
			step.Events = []Event{{corev1.EventTypeWarning, reasonNotReady, event}}
		}
		return step
	}
	switch policy {
	case v1beta1.VirtualMachineRestoreWaitEventually:
		return wait(textEventually, textStillThere)
	case v1beta1.VirtualMachineRestoreStopTarget:
		step := wait(textStopping, textStopping)
		step.Stop = v.stop()
		return step
	case v1beta1.VirtualMachineRestoreFailImmediate:
		return v.giveUp(textMustBeOff)
	case v1beta1.VirtualMachineRestoreWaitGracePeriodAndFail:
		left := v.Restore.CreationTimestamp.Add(v1beta1.DefaultGracePeriod).Sub(v.Now)
		if left < 0 {
			return v.giveUp(textTooLate)
		}
		step := wait(textGrace, textStillThere)
		step.RequeueAfter = left + time.Second
		return step
	}
	return v.stuck(fmt.Sprintf("unknown targetReadinessPolicy: %v", policy))
}

// end returns the step of a restore that is being deleted. One that has begun to replace the target's claims goes on
// until the target is whole again, and one that is committed is finished.
func (v *View) end() Step {
	r := v.Restore
	if !slices.Contains(r.Finalizers, Finalizer) {
		return Step{}
	}
	live := v.VM != nil && v.VM.DeletionTimestamp == nil
	if r.Status != nil && !snapshots.RestoreEnded(r) && live {
		if v.committed() {
			return v.finish()
		}
		if v.begun() && v.VMI == nil && v.trouble() == "" {
			if step := v.restore(); !step.Stuck {
				return step
			}
		}
	}
	step := Step{Release: v.held(), RemoveFinalizer: true}
	if r.Status == nil || snapshots.RestoreEnded(r) && !snapshots.RestoreFailed(r) || v.committed() {
		return step
	}
	status := r.Status.DeepCopy()
	v.say(status, corev1.ConditionFalse, textDeleting, textDeleting)
	step.Status = status
	if !v.inPlace() {
		v.discard(&step)
	}
	return step
}

// begun reports a restore in place that has deleted a claim of its target.
func (v *View) begun() bool {
	restores := v.Restore.Status.Restores
	return v.inPlace() && v.held() && slices.ContainsFunc(restores, func(o v1beta1.VolumeRestore) bool {
		claim := v.Made[o.PersistentVolumeClaimName]
		return claim == nil || claim.DeletionTimestamp != nil || marked(v.Restore, claim)
	})
}

// discard has what the restore made deleted, which nobody uses.
func (v *View) discard(step *Step) {
	for _, o := range v.Restore.Status.Restores {
		if o.DataVolumeName != nil {
			if dv := v.DataVolumes[*o.DataVolumeName]; dv != nil &&
				dv.Annotations[NameAnnotation] == v.Restore.Name && dv.DeletionTimestamp == nil {
				step.DeleteDataVolumes = append(step.DeleteDataVolumes, dv)
			}
		}
		if claim := v.Made[o.PersistentVolumeClaimName]; claim != nil && marked(v.Restore, claim) &&
			claim.DeletionTimestamp == nil {
			step.DeleteClaims = append(step.DeleteClaims, claim)
		}
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func (v *View) now() metav1.Time { return metav1.NewTime(v.Now).Rfc3339Copy() }

// stop returns the change that ends the target's guest as `virtctl stop` does; none for a guest that is ending.
func (v *View) stop() runstrategy.Change {
	strategy, err := v.VM.RunStrategy()
	if err != nil || v.VMI.DeletionTimestamp != nil {
		return runstrategy.Change{}
	}
	return runstrategy.Stop(strategy, v.VMI.UID)
}
