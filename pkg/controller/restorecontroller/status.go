package restorecontroller

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// Reasons of events; KubeVirt's.
const (
	reasonComplete = "VirtualMachineRestoreComplete"
	reasonError    = "VirtualMachineRestoreError"
	reasonFailed   = "Operation failed"
	reasonNotReady = "RestoreTargetNotReady"
	// reasonLeftOut is ours: KubeVirt gives such a VM the other's claim.
	reasonLeftOut = "VolumesLeftOut"
	// reasonNotDeleted is ours, too: KubeVirt deletes what another VM uses.
	reasonNotDeleted = "ClaimsNotDeleted"
)

// Texts of conditions and events; KubeVirt's, which its clients match.
const (
	textInitializing = "Initializing VirtualMachineRestore"
	textCreating     = "Creating new PVCs"
	textWaiting      = "Waiting for new PVCs"
	textUpdating     = "Updating target spec"
	textAwaiting     = "Waiting for target update"
	textComplete     = "Operation complete"
	textDeleting     = "VM restore is deleting"
	textStopping     = "Automatically stopping restore target for restore operation"
	textMustBeOff    = "Restore target VMI must be powered off before restore operation"
	textStillThere   = "Restore target VMI still exists, please stop the restore target to proceed with restore"
	textEventually   = "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore"
	textHeld         = "vm %s %s in progress" // snapshots.Holder's answer
	textOtherTarget  = "restore source and restore target are different but restore target already exists"
)

// textGrace and textTooLate are about the time that a target has to be stopped.
var (
	textGrace = fmt.Sprintf("%s, or the operation will fail after %s", textEventually, v1beta1.DefaultGracePeriod)

	textTooLate = fmt.Sprintf("Restore target failed to be ready within %s. Please power off the target VM before "+
		"attempting restore", v1beta1.DefaultGracePeriod)
)

// initial returns the status of a restore that nobody has looked at yet.
func (v *View) initial() *v1beta1.VirtualMachineRestoreStatus {
	status := &v1beta1.VirtualMachineRestoreStatus{Complete: new(false)}
	v.say(status, corev1.ConditionTrue, textInitializing, textInitializing)
	return status
}

// status returns a copy of the restore's status with other texts: on what is done, and on what Ready waits for.
func (v *View) status(progressing, ready string) *v1beta1.VirtualMachineRestoreStatus {
	status := v.Restore.Status.DeepCopy()
	v.say(status, corev1.ConditionTrue, progressing, ready)
	return status
}

func (v *View) say(
	status *v1beta1.VirtualMachineRestoreStatus, progress corev1.ConditionStatus, progressing, ready string,
) {
	for _, condition := range []v1beta1.Condition{
		{Type: v1beta1.ConditionProgressing, Status: progress, Reason: progressing},
		{Type: v1beta1.ConditionReady, Status: corev1.ConditionFalse, Reason: ready},
	} {
		conditions.Set(&status.Conditions, condition, v.Now)
	}
}

// complete returns the status of a restore that is done.
func (v *View) complete() *v1beta1.VirtualMachineRestoreStatus {
	status := v.Restore.Status.DeepCopy()
	now := v.now()
	status.Complete, status.RestoreTime = new(true), &now
	status.DeletedDataVolumes = slices.DeleteFunc(status.DeletedDataVolumes, v.isSpared)
	for of, is := range map[v1beta1.ConditionType]corev1.ConditionStatus{
		v1beta1.ConditionProgressing: corev1.ConditionFalse, v1beta1.ConditionReady: corev1.ConditionTrue,
	} {
		conditions.Set(&status.Conditions, v1beta1.Condition{Type: of, Status: is, Reason: textComplete}, v.Now)
	}
	return status
}

// stuck returns a step that says why it goes no further, and tries again; an event comes with each new reason.
func (v *View) stuck(text string) Step {
	status := v.Restore.Status.DeepCopy()
	v.say(status, corev1.ConditionFalse, text, text)
	step := Step{Status: status, Stuck: true}
	step.RequeueAfter = again
	if v.saysNot(text) {
		step.Events = []Event{{corev1.EventTypeWarning, reasonError, "VirtualMachineRestore encountered error " + text}}
	}
	return step
}

// untilDone splits the status of a step into what is written before the step is done and what is written after it. A
// restore that has said why it goes no further says so until a try has succeeded: else it would say in turns that it
// is stuck and that it goes on.
func (v *View) untilDone(step *Step) (now, afterwards *v1beta1.VirtualMachineRestoreStatus) {
	said := v.Restore.Status
	if step.Status == nil || step.Stuck || said == nil || !isStuck(said) ||
		conditions.Find(step.Status.Conditions, v1beta1.ConditionFailure) != nil {
		return step.Status, nil
	}
	now = step.Status.DeepCopy()
	now.Conditions = said.DeepCopy().Conditions
	return now, step.Status
}

// isStuck reports that a restore says why it goes no further, and is not at its end.
func isStuck(status *v1beta1.VirtualMachineRestoreStatus) bool {
	progress := conditions.Find(status.Conditions, v1beta1.ConditionProgressing)
	return progress != nil && progress.Status == corev1.ConditionFalse &&
		(status.Complete == nil || !*status.Complete) &&
		conditions.Find(status.Conditions, v1beta1.ConditionFailure) == nil
}

// giveUp returns the step of a restore that fails.
func (v *View) giveUp(text string) Step {
	status := v.Restore.Status.DeepCopy()
	v.say(status, corev1.ConditionFalse, text, text)
	message := text + "; " + v.outcome()
	conditions.Set(&status.Conditions, v1beta1.Condition{
		Type: v1beta1.ConditionFailure, Status: corev1.ConditionTrue, Reason: text, Message: message,
	}, v.Now)
	return Step{
		Status: status, Release: v.held(),
		Events: []Event{{corev1.EventTypeWarning, reasonFailed, "VirtualMachineRestore failed " + message}},
	}
}

// outcome returns what the target is when the restore ends as the view shows it: the old VM or the new one.
func (v *View) outcome() string {
	target := v.Restore.Spec.Target.Name
	switch {
	case v.VM == nil:
		return fmt.Sprintf("VM %s was not made", target)
	case v.committed():
		return fmt.Sprintf("VM %s is the new one, whole", target)
	case v.begun(): // only one that is deleted ends there
		return fmt.Sprintf("VM %s has its old spec, and claims of it are replaced already; restore snapshot %s again",
			target, v.Restore.Spec.VirtualMachineSnapshotName)
	}
	return fmt.Sprintf("VM %s is the old one, whole: nothing of it was replaced", target)
}

// saysNot reports that the restore does not say a text yet.
func (v *View) saysNot(text string) bool {
	ready := conditions.Find(v.Restore.Status.Conditions, v1beta1.ConditionReady)
	return ready == nil || ready.Reason != text
}
