package clonecontroller

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Next returns the writes that take a clone from what view shows to its next phase.
func Next(view View) Step {
	step := view.next()
	if len(step.Create) > 0 || step.deletes() {
		step.RequeueAfter = frame.CatchUp
	}
	return step
}

func (v *View) next() Step {
	c := v.Clone
	if v.Image != nil {
		return v.image()
	}
	if c.DeletionTimestamp != nil {
		return v.end()
	}
	switch c.Status.Phase {
	case clonev1beta1.PhaseUnset:
		return Step{Status: v.phase(clonev1beta1.SnapshotInProgress)}
	case clonev1beta1.SnapshotInProgress:
		if v.Remote != nil {
			return v.snapshotRemote()
		}
		return v.snapshot()
	case clonev1beta1.RestoreInProgress:
		return v.restore()
	case clonev1beta1.CreatingTargetVM:
		return v.target()
	case clonev1beta1.Succeeded:
		return v.cleanUp()
	case clonev1beta1.Failed:
		return v.discard()
	}
	return Step{}
}

// discard removes what a clone has made that failed. The restore, which goes first, takes its claims away.
func (v *View) discard() Step {
	switch {
	case v.Restore != nil && v.Restore.DeletionTimestamp == nil:
		return Step{DeleteRestore: v.Restore}
	case v.temporary():
		return Step{DeleteSnapshot: v.Snapshot}
	}
	return v.deleteRemote()
}

// temporary reports a snapshot in the clone's namespace that the clone has made, and that is not deleted yet.
func (v *View) temporary() bool {
	return (v.ofMachine() || v.Remote != nil) && v.Snapshot != nil && v.Snapshot.DeletionTimestamp == nil
}

// phase returns a copy of the clone's status with another phase.
func (v *View) phase(next clonev1beta1.VirtualMachineClonePhase) *clonev1beta1.VirtualMachineCloneStatus {
	status := v.Clone.Status.DeepCopy()
	status.Phase = next
	progress, ready, reason := corev1.ConditionTrue, corev1.ConditionFalse, "Still processing"
	switch next {
	case clonev1beta1.Succeeded:
		progress, ready, reason = corev1.ConditionFalse, corev1.ConditionTrue, "Ready"
	case clonev1beta1.Failed:
		progress, reason = corev1.ConditionFalse, "Failed"
	}
	for of, is := range map[clonev1beta1.ConditionType]corev1.ConditionStatus{
		clonev1beta1.ConditionProgressing: progress, clonev1beta1.ConditionReady: ready,
	} {
		conditions.Set(&status.Conditions, clonev1beta1.Condition{Type: of, Status: is, Reason: reason}, v.Now)
	}
	if status.CreationTime == nil && next == clonev1beta1.Succeeded {
		now := metav1.NewTime(v.Now).Rfc3339Copy()
		status.CreationTime = &now
	}
	return status
}

// fail ends the clone; what its conditions have no room for is said by an event, and in their message.
func (v *View) fail(reason, text string) Step {
	status := v.phase(clonev1beta1.Failed)
	for i := range status.Conditions {
		status.Conditions[i].Message = text
	}
	return Step{Status: status, Events: []Event{{corev1.EventTypeWarning, reason, text}}}
}

// taken returns the step of a clone whose new VM cannot have its name.
func (v *View) taken() Step {
	return v.fail(reasonTaken, fmt.Sprintf("VM %s/%s exists, and this clone did not make it; make a clone with "+
		"another spec.target.name", v.Other.Namespace, v.Other.Name))
}

// ofMachine reports the clone of a VM, not of a snapshot.
func (v *View) ofMachine() bool { return v.Clone.Spec.Source.Kind == kindMachine }

// snapshot plans the phase in which there is no snapshot to restore yet.
func (v *View) snapshot() Step {
	c := v.Clone
	source := c.Spec.Source
	switch {
	case v.Other != nil:
		return v.taken()
	case v.ofMachine() && c.Status.SnapshotName == nil:
		if v.Source == nil {
			return v.fail(reasonNoSource,
				fmt.Sprintf("%s %s does not exist in namespace %s", source.Kind, source.Name, c.Namespace))
		}
		status := v.phase(clonev1beta1.SnapshotInProgress)
		status.SnapshotName = new(SnapshotName(c))
		step := Step{Status: status}
		if v.Snapshot == nil {
			step.CreateSnapshot = v.newSnapshot()
			step.Events = []Event{{
				corev1.EventTypeNormal, reasonSnapshotCreated,
				fmt.Sprintf("created snapshot %s for clone %s", SnapshotName(c), c.Name),
			}}
		}
		return step
	case v.Snapshot == nil && !v.ofMachine():
		return v.fail(reasonNoSource,
			fmt.Sprintf("%s %s does not exist in namespace %s", source.Kind, source.Name, c.Namespace))
	case v.Snapshot == nil:
		return v.fail(reasonSnapshotDeleted, fmt.Sprintf("snapshot %s does not exist anymore", *c.Status.SnapshotName))
	case v.Snapshot.Status != nil && v.Snapshot.Status.Phase == v1beta1.Failed:
		return v.fail(reasonSnapshotDeleted, failedSnapshot(v.Snapshot.Name, v.Snapshot))
	case !snapshots.Restorable(v.Snapshot):
		return Step{}
	}
	return Step{Status: v.phase(clonev1beta1.RestoreInProgress), Events: []Event{{
		corev1.EventTypeNormal, reasonSnapshotReady,
		fmt.Sprintf("snapshot %s for clone %s is ready to use", v.Snapshot.Name, c.Name),
	}}}
}

// restore plans the phase in which the snapshot becomes a VM.
func (v *View) restore() Step {
	c := v.Clone
	if v.Snapshot == nil {
		return v.fail(reasonSnapshotDeleted, fmt.Sprintf("snapshot %s does not exist anymore", v.localSnapshot()))
	}
	switch r := v.Restore; {
	case v.Other != nil:
		return v.taken()
	case v.Remote != nil && v.lost() != "" && !complete(r):
		return v.fail(reasonSnapshotDeleted, v.lost())
	case r == nil && c.Status.RestoreName != nil:
		return v.fail(reasonRestoreFailed, fmt.Sprintf("restore %s does not exist anymore", *c.Status.RestoreName))
	case r == nil:
		return v.begin()
	case c.Status.RestoreName == nil:
		status := v.phase(clonev1beta1.RestoreInProgress)
		status.RestoreName = &r.Name
		return Step{Status: status}
	case failure(r) != "":
		return v.fail(reasonRestoreFailed, fmt.Sprintf("restore %s failed: %s", r.Name, failure(r)))
	case !complete(r):
		return Step{Status: v.waiting(r)}
	}
	status := v.phase(clonev1beta1.CreatingTargetVM)
	status.TargetName = &v.Restore.Spec.Target.Name
	return Step{Status: status, Events: []Event{{
		corev1.EventTypeNormal, reasonRestoreReady,
		fmt.Sprintf("restore %s for clone %s is ready to use", v.Restore.Name, c.Name),
	}}}
}

func complete(r *v1beta1.VirtualMachineRestore) bool {
	return r != nil && r.Status != nil && r.Status.Complete != nil && *r.Status.Complete
}

// waiting returns the status of a clone whose restore is not complete, nil when it has it; it says why a restore goes
// no further.
func (v *View) waiting(r *v1beta1.VirtualMachineRestore) *clonev1beta1.VirtualMachineCloneStatus {
	text := ""
	if r.Status != nil {
		p := conditions.With(r.Status.Conditions, v1beta1.ConditionProgressing, corev1.ConditionFalse)
		if p != nil {
			text = fmt.Sprintf("restore %s: %s", r.Name, p.Reason)
		}
	}
	return v.saying(text)
}

// saying returns the clone's status with a message in its conditions, nil when it has it.
func (v *View) saying(text string) *clonev1beta1.VirtualMachineCloneStatus {
	status := v.phase(v.Clone.Status.Phase)
	for i := range status.Conditions {
		status.Conditions[i].Message = text
	}
	if equality.Semantic.DeepEqual(status, &v.Clone.Status) {
		return nil
	}
	return status
}

func failedSnapshot(name string, s *v1beta1.VirtualMachineSnapshot) string {
	return fmt.Sprintf("snapshot %s failed: %s", name, cmp.Or(snapshots.Trouble(s), "no reason is given"))
}

func failure(r *v1beta1.VirtualMachineRestore) string {
	if r.Status == nil {
		return ""
	}
	if f := conditions.Find(r.Status.Conditions, v1beta1.ConditionFailure); f != nil {
		return f.Reason
	}
	return ""
}

// begin makes the restore.
func (v *View) begin() Step {
	c := v.Clone
	if v.Content == nil || v.Content.Spec.Source.VirtualMachine == nil ||
		v.Content.Spec.Source.VirtualMachine.Spec.Template == nil {
		step := Step{Events: []Event{{
			corev1.EventTypeWarning, reasonRestoreFailed,
			fmt.Sprintf("cannot get VM manifest from snapshot: %s has no content", v.Snapshot.Name),
		}}}
		step.RequeueAfter = again
		return step
	}
	patches, err := Patches(v.Content.Spec.Source.VirtualMachine, &c.Spec, clones.Kept(c))
	if err != nil {
		return v.fail(reasonRestoreFailed, err.Error())
	}
	status := v.phase(clonev1beta1.RestoreInProgress)
	status.RestoreName = new(RestoreName(c))
	return Step{
		CreateRestore: v.newRestore(patches), Status: status,
		Events: []Event{{
			corev1.EventTypeNormal, reasonRestoreCreated,
			fmt.Sprintf("created restore %s for clone %s", RestoreName(c), c.Name),
		}},
	}
}

// target plans the phase in which the new VM is to appear.
func (v *View) target() Step {
	if v.Target == nil {
		step := Step{}
		step.RequeueAfter = again
		return step
	}
	step := Step{Status: v.phase(clonev1beta1.Succeeded), Events: []Event{{
		corev1.EventTypeNormal, reasonTargetCreated,
		fmt.Sprintf("created target VM %s for clone %s", v.Target.Name, v.Clone.Name),
	}}}
	if left := v.left(); left != "" {
		step.Events = append(step.Events, Event{corev1.EventTypeWarning, reasonLeft, left})
		for i := range step.Status.Conditions {
			step.Status.Conditions[i].Message = left
		}
	}
	return step
}

// cleanUp removes what was temporary once the new VM's claims are bound, and the clone when its VM is gone.
func (v *View) cleanUp() Step {
	c := v.Clone
	if v.Target == nil {
		return Step{DeleteClone: true}
	}
	if c.Status.RestoreName == nil {
		return Step{}
	}
	if len(v.Unbound) > 0 && v.Remote != nil && v.lost() != "" {
		return Step{Status: v.saying(fmt.Sprintf("claims %s cannot be filled: %s; delete VM %s and clone anew",
			strings.Join(v.Unbound, ", "), v.lost(), v.Target.Name))}
	}
	if len(v.Unbound) > 0 {
		return Step{} // the event of their volume comes
	}
	if v.Restore != nil && v.Restore.DeletionTimestamp == nil {
		return Step{DeleteRestore: v.Restore}
	}
	if v.temporary() {
		return Step{DeleteSnapshot: v.Snapshot}
	}
	if step := v.deleteRemote(); step.deletes() || step.RemoveFinalizer {
		return step
	}
	status := v.phase(clonev1beta1.Succeeded)
	status.SnapshotName, status.RestoreName = nil, nil
	return Step{Status: status, Events: []Event{{
		corev1.EventTypeNormal, reasonPVCBound, fmt.Sprintf("all PVC for clone %s are bound", c.Name),
	}}}
}
