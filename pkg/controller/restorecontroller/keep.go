package restorecontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// keeps reports that what the restore replaces stays: the claims of the old VM, and its spec in a ControllerRevision of
// the restore's, which the VM names from the commit on.
func (v *View) keeps() bool { return v.VM != nil && snapshots.Keeps(v.Restore) }

// keepFormer has the commit keep what the target is now, and notes on the target where.
func (v *View) keepFormer(vm *v1.VirtualMachine, step *Step) error {
	delete(vm.Annotations, snapshots.FormerAnnotation) // what an earlier restore has kept is not the last any more
	if !v.keeps() {
		return nil
	}
	name := snapshots.FormerName(v.Restore, v.VM.Generation)
	vm.Annotations[snapshots.FormerAnnotation] = name
	if v.Revisions[name] != nil {
		return nil
	}
	former := snapshots.Former{UID: v.VM.UID, Spec: v.VM.Spec}
	if state := vmstate.Choose(v.VM.Name, v.VM.UID, v.States); state != nil {
		former.StateVolume, former.State = snapshots.StateVolume(v.VM.Name), state.Name
	}
	data, err := json.Marshal(former)
	if err != nil {
		return fmt.Errorf("keep the spec of VM %s: %w", v.VM.Name, err)
	}
	kind := v1beta1.SchemeGroupVersion.WithKind("VirtualMachineRestore")
	step.CreateRevisions = append(step.CreateRevisions, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.VM.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.Restore, kind)},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: v.VM.Generation,
	})
	return nil
}

// markKept labels claims that the old VM had and the new one has not, and takes the label from those that it has again.
func (v *View) markKept(step *Step) {
	if !v.keeps() {
		return
	}
	used := snapshots.ClaimNames(&v.VM.Spec)
	for _, o := range v.Restore.Status.Restores {
		used = append(used, o.PersistentVolumeClaimName)
	}
	value := names.LabelValue(v.Restore.Name)
	for _, name := range slices.Sorted(maps.Keys(v.Kept)) {
		claim := v.Kept[name]
		changed := slices.ContainsFunc(step.ChangeClaims, func(c Change[*corev1.PersistentVolumeClaim]) bool {
			return c.After.UID == claim.UID
		})
		if changed || claim.DeletionTimestamp != nil { // it is looked at again
			continue
		}
		after := claim.DeepCopy()
		if slices.Contains(used, name) {
			delete(after.Labels, snapshots.KeptLabel)
		} else {
			metav1.SetMetaDataLabel(&after.ObjectMeta, snapshots.KeptLabel, value)
		}
		if !maps.Equal(after.Labels, claim.Labels) {
			step.ChangeClaims = append(step.ChangeClaims, Change[*corev1.PersistentVolumeClaim]{claim, after})
		}
	}
}

// release returns a claim that is not the target's state any more: it stays if the restore keeps what it replaces.
func (v *View) release(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	after := claim.DeepCopy()
	delete(after.Labels, vmstate.Prefix)
	if v.keeps() {
		after.Labels[snapshots.KeptLabel] = names.LabelValue(v.Restore.Name)
	} else {
		after.Labels[replacedLabel] = replacedValue(v.VM.Name)
	}
	return after
}

// undo plans the first phase of a restore that takes another back: the VM becomes what that one replaced.
func (v *View) undo() Step {
	if lost := v.lostForGood(); lost != "" && (!snapshots.Restoring(v.VM) || v.held()) { // nothing is changed yet
		return v.giveUp(lost)
	}
	if trouble := v.irreversible(); trouble != "" {
		return v.stuck(trouble)
	}
	if !snapshots.Restoring(v.VM) {
		return Step{Hold: true}
	}
	status := v.status(textUpdating, textAwaiting)
	status.Restores = v.Former.Restores()
	if !equality.Semantic.DeepEqual(status.Restores, v.Restore.Status.Restores) {
		return Step{Status: status}
	}
	vm := v.VM.DeepCopy()
	spec := v.Former.Spec.DeepCopy()
	if err := keepStrategy(spec, vm); err != nil {
		return v.stuck(err.Error())
	}
	vm.Spec = *spec
	metav1.SetMetaDataAnnotation(&vm.ObjectMeta, LastAnnotation, mark(v.Restore))
	// The memory that the guest was to go on from is of the disks that it does not have any more: it boots.
	delete(vm.Annotations, savedmemory.ResumeAnnotation)
	step := Step{Status: status, VM: vm}
	if err := v.keepFormer(vm, &step); err != nil {
		return v.stuck(err.Error())
	}
	return step
}

// irreversible returns why a restore cannot be taken back, or "" when it can.
func (v *View) irreversible() string {
	name, vm := snapshots.Undoes(v.Restore), v.VM
	if vm == nil {
		return fmt.Sprintf("VM %s does not exist; restore %s cannot be taken back", v.Restore.Spec.Target.Name, name)
	}
	switch kind, holder := snapshots.Holder(vm, v.Restore.Name); {
	case vm.DeletionTimestamp != nil:
		return fmt.Sprintf("VM %s is being deleted", vm.Name)
	case kind != "":
		return fmt.Sprintf(textHeld, kind, holder)
	case v.Undone == nil:
		return fmt.Sprintf("restore %s does not exist; what it replaced is not known any more", name)
	case v.Undone.Status == nil || !isTrue(v.Undone.Status.Complete):
		return fmt.Sprintf("restore %s is not complete; it cannot be taken back", name)
	case !marked(v.Undone, vm):
		return fmt.Sprintf("restore %s is not the last one of VM %s; take back the last one first", name, vm.Name)
	case v.Former == nil:
		return fmt.Sprintf("restore %s has not kept what it replaced; it was made without the annotation %s: "+
			`"true"`, name, snapshots.KeepAnnotation)
	case v.Former.UID != vm.UID:
		return fmt.Sprintf("restore %s is of another VM %s, which was deleted", name, vm.Name)
	}
	if lost := v.lostForGood(); lost != "" {
		return lost
	}
	if taken := snapshots.Taken(v.Former, vm, v.Users); len(taken) > 0 {
		return fmt.Sprintf("restore %s would be taken back to claims that are in use: %s; unplug them there first",
			name, strings.Join(taken, ", "))
	}
	return ""
}

// lostForGood returns which claims are gone without which a restore cannot be taken back, whatever is waited for.
func (v *View) lostForGood() string {
	if v.VM == nil || v.Former == nil {
		return ""
	}
	lost := snapshots.Lost(v.Former, v.Kept)
	if len(lost) == 0 {
		return ""
	}
	return fmt.Sprintf("PVC %s, which restore %s replaced, is gone", strings.Join(lost, ", "),
		snapshots.Undoes(v.Restore))
}

// lookAtKept finds what was kept: by this restore once it is committed, before that by the one that it takes back.
func (r *Reconciler) lookAtKept(ctx context.Context, view *View) error {
	restore, vm := view.Restore, view.VM
	if !view.keeps() {
		return nil
	}
	of := restore
	if undone := snapshots.Undoes(restore); undone != "" && !view.committed() {
		var err error
		view.Undone, err = frame.Found(ctx, r.Client, restore.Namespace, undone, &v1beta1.VirtualMachineRestore{})
		if err != nil || view.Undone == nil {
			return err
		}
		of = view.Undone
	}
	name := vm.Annotations[snapshots.FormerAnnotation]
	if name == "" || !marked(of, vm) {
		return nil
	}
	revision, err := frame.Found(ctx, r.Live, vm.Namespace, name, &appsv1.ControllerRevision{})
	// The VM's users write its annotations: only a revision that this controller made for the restore counts.
	if err != nil || revision == nil || !metav1.IsControlledBy(revision, of) {
		return err
	}
	if view.Former, err = snapshots.ReadFormer(revision.Data.Raw); err != nil {
		return err
	}
	claims := append(snapshots.ClaimNames(&vm.Spec), snapshots.ClaimNames(&view.Former.Spec)...)
	if view.Former.State != "" {
		claims = append(claims, view.Former.State)
	}
	view.Kept = map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range claims {
		claim, err := frame.Found(ctx, r.Live, vm.Namespace, name, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return err
		}
		if claim != nil {
			view.Kept[name] = claim
		}
	}
	return nil
}
