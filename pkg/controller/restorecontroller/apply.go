package restorecontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/virtkit/virtkit/pkg/frame"
)

// apply does what the step says, in the order of its fields. What the API server refuses is the restore's trouble,
// which its conditions report.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	restore := view.Restore
	if trouble, err := r.rehearse(ctx, step.Rehearse); err != nil {
		return err
	} else if trouble != "" {
		*step = view.giveUp(trouble)
	}
	status, afterwards := view.untilDone(step)
	if status != nil {
		if err := r.writeStatus(ctx, restore, status); err != nil {
			return err
		}
	}
	for _, event := range step.Events {
		r.Recorder.Event(restore, event.Type, event.Reason, event.Message)
	}
	if step.Prepare {
		return r.writes.Change(ctx, restore, func() {
			controllerutil.AddFinalizer(restore, Finalizer)
			if len(restore.OwnerReferences) == 0 && view.VM != nil {
				restore.OwnerReferences = []metav1.OwnerReference{ownerOf(view.VM)}
			}
		})
	}
	if err := r.act(ctx, view, step); err != nil {
		return r.refused(ctx, &view, err)
	}
	if afterwards != nil {
		if err := r.writeStatus(ctx, restore, afterwards); err != nil {
			return err
		}
	}
	if step.Done != nil {
		if err := r.writeStatus(ctx, restore, step.Done); err != nil {
			return err
		}
	}
	if step.RemoveFinalizer {
		return r.writes.RemoveFinalizer(ctx, restore, Finalizer)
	}
	return nil
}

// rehearse asks the API server, and with it admission, whether it would take a VM, and returns why it would not. An
// error that another try may not meet is none of these.
func (r *Reconciler) rehearse(ctx context.Context, vm *v1.VirtualMachine) (trouble string, err error) {
	if vm == nil {
		return "", nil
	}
	// Not by r.writes: a dry run writes nothing.
	switch err := r.Client.Create(ctx, vm.DeepCopy(), client.DryRunAll); {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return fmt.Sprintf("VM %s would be refused: %v", vm.Name, err), nil
	case err != nil && !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err):
		return "", fmt.Errorf("rehearse the creation of VM %s: %w", vm.Name, err)
	}
	return "", nil
}

// act writes all that is not the restore itself.
func (r *Reconciler) act(ctx context.Context, view View, step *Step) error {
	vm := view.VM
	if step.Stop {
		if err := r.stop(ctx, vm, view.VMI); err != nil {
			return err
		}
	}
	if step.Hold {
		status := vm.Status.DeepCopy()
		status.RestoreInProgress = &view.Restore.Name
		if err := frame.PatchStatus(ctx, r.writes, vm, &vm.Status, *status); err != nil {
			return fmt.Errorf("hold VM %s: %w", vm.Name, err)
		}
	}
	if err := r.volumes(ctx, view.Restore, step); err != nil {
		return err
	}
	if err := r.commit(ctx, view, step); err != nil {
		return err
	}
	for _, dv := range step.DeleteDataVolumes {
		if _, err := r.writes.Delete(ctx, dv); err != nil {
			return fmt.Errorf("delete DataVolume %s: %w", dv.Name, err)
		}
	}
	if step.Release {
		status := vm.Status.DeepCopy()
		status.RestoreInProgress, status.MemoryDumpRequest = nil, nil
		if err := frame.PatchStatus(ctx, r.writes, vm, &vm.Status, *status); err != nil {
			return fmt.Errorf("release VM %s: %w", vm.Name, err)
		}
	}
	return nil
}

// volumes writes claims and DataVolumes. A claim is deleted only after its DataVolume was changed.
func (r *Reconciler) volumes(ctx context.Context, restore *v1beta1.VirtualMachineRestore, step *Step) error {
	for _, change := range step.ChangeClaims {
		if err := r.writes.Patch(ctx, change.Before, change.After); err != nil {
			return fmt.Errorf("change PVC %s: %w", change.After.Name, err)
		}
	}
	for _, change := range step.ChangeDataVolumes {
		if err := r.writes.Patch(ctx, change.Before, change.After); err != nil {
			return fmt.Errorf("change DataVolume %s: %w", change.After.Name, err)
		}
	}
	for _, claim := range step.DeleteClaims {
		if _, err := r.writes.Delete(ctx, claim); err != nil {
			return fmt.Errorf("delete PVC %s: %w", claim.Name, err)
		}
	}
	for _, claim := range step.CreateClaims {
		if err := r.create(ctx, claim); err != nil {
			return fmt.Errorf("create PVC %s: %w", claim.Name, err)
		}
	}
	for _, dv := range step.CreateDataVolumes {
		if err := r.create(ctx, dv); err != nil {
			return fmt.Errorf("Failed to create restore DataVolume: %w", err) //nolint:staticcheck // KubeVirt's words
		}
	}
	return nil
}

// commit writes the target, after the ControllerRevisions that it refers to.
func (r *Reconciler) commit(ctx context.Context, view View, step *Step) error {
	for _, revision := range step.CreateRevisions {
		if err := r.create(ctx, revision); err != nil {
			return fmt.Errorf("create ControllerRevision %s: %w", revision.Name, err)
		}
	}
	switch {
	case step.CreateVM != nil:
		if err := r.create(ctx, step.CreateVM); err != nil {
			return fmt.Errorf("create VM %s: %w", step.CreateVM.Name, err)
		}
		for _, event := range step.MadeEvents {
			r.Recorder.Event(step.CreateVM, event.Type, event.Reason, event.Message)
		}
	case step.VM != nil:
		if err := r.writes.Patch(ctx, view.VM, step.VM); err != nil {
			return fmt.Errorf("write VM %s: %w", step.VM.Name, err)
		}
	}
	for _, change := range step.ChangeRevisions {
		if err := r.writes.Patch(ctx, change.Before, change.After); err != nil {
			return fmt.Errorf("change ControllerRevision %s: %w", change.After.Name, err)
		}
	}
	return nil
}

// create makes an object; one that is there already is looked at next time.
func (r *Reconciler) create(ctx context.Context, object client.Object) error {
	if err := r.writes.Create(ctx, object); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return frame.ErrStale
}

// stop ends the target's guest as `virtctl stop` does.
func (r *Reconciler) stop(ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) error {
	strategy, request := Stop(vm, vmi)
	switch {
	case strategy != "":
		err := r.writes.Change(ctx, vm, func() {
			if vm.Spec.Running != nil {
				vm.Spec.Running = new(false)
			} else {
				vm.Spec.RunStrategy = &strategy
			}
		})
		if err != nil {
			return fmt.Errorf("stop VM %s: %w", vm.Name, err)
		}
	case request != nil:
		status := vm.Status.DeepCopy()
		status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{*request}
		if err := frame.PatchStatus(ctx, r.writes, vm, &vm.Status, *status); err != nil {
			return fmt.Errorf("stop VM %s: %w", vm.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) writeStatus(
	ctx context.Context, restore *v1beta1.VirtualMachineRestore, status *v1beta1.VirtualMachineRestoreStatus,
) error {
	return frame.PatchStatus(ctx, r.writes, restore, &restore.Status, status)
}

// letGo ends a restore that is deleted and cannot be finished, so that neither it nor its target waits for ever.
func (r *Reconciler) letGo(ctx context.Context, view *View, why error) error {
	r.Recorder.Event(view.Restore, corev1.EventTypeWarning, reasonError,
		"VirtualMachineRestore is deleted before its end: "+why.Error())
	release := Step{Release: view.held()}
	if err := r.act(ctx, *view, &release); err != nil {
		return err
	}
	return r.writes.RemoveFinalizer(ctx, view.Restore, Finalizer)
}

// refused says in the restore's conditions what the API server refused, and returns the error, so that it is tried
// again. What another wrote meanwhile is no trouble.
func (r *Reconciler) refused(ctx context.Context, view *View, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil || view.Restore.Status == nil ||
		!apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) {
		return err
	}
	if view.Restore.DeletionTimestamp != nil {
		return r.letGo(ctx, view, err)
	}
	step := view.stuck(err.Error())
	for _, event := range step.Events {
		r.Recorder.Event(view.Restore, corev1.EventTypeWarning, event.Reason, event.Message)
	}
	if writeErr := r.writeStatus(ctx, view.Restore, step.Status); writeErr != nil {
		return writeErr
	}
	return err
}
