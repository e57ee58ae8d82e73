package restorecontroller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
)

// apply does what the step says, and what follows from what the API server answers to that.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if trouble, err := r.rehearse(ctx, step.Rehearse); err != nil {
		return err
	} else if trouble != "" {
		*step = view.giveUp(trouble)
	}
	now, afterwards := view.untilDone(step)
	if err := r.report(ctx, view.Restore, now, step.Events); err != nil {
		return err
	}
	if step.Prepare {
		return r.prepare(ctx, view)
	}
	if err := r.act(ctx, view, step); err != nil {
		answer := view.refused(err)
		if answer == nil || ctx.Err() != nil {
			return err
		}
		return r.applyRefusal(ctx, view, answer, err)
	}
	for _, status := range []*v1beta1.VirtualMachineRestoreStatus{afterwards, step.Done} {
		if err := r.report(ctx, view.Restore, status, nil); err != nil {
			return err
		}
	}
	return r.removeFinalizer(ctx, view, step)
}

// applyRefusal does what follows a refusal. One that leaves the restore stuck is tried again.
func (r *Reconciler) applyRefusal(ctx context.Context, view View, answer *Step, refusal error) error {
	if err := r.report(ctx, view.Restore, answer.Status, answer.Events); err != nil {
		return err
	}
	if answer.Stuck {
		return refusal
	}
	if err := r.act(ctx, view, answer); err != nil {
		return err
	}
	return r.removeFinalizer(ctx, view, answer)
}

// report writes a status, if there is one, and events.
func (r *Reconciler) report(
	ctx context.Context, restore *v1beta1.VirtualMachineRestore, status *v1beta1.VirtualMachineRestoreStatus,
	events []Event,
) error {
	if status != nil {
		if err := frame.PatchStatus(ctx, r.writes, restore, &restore.Status, status); err != nil {
			return err
		}
	}
	for _, event := range events {
		r.Recorder.Event(restore, event.Type, event.Reason, event.Message)
	}
	return nil
}

func (r *Reconciler) prepare(ctx context.Context, view View) error {
	restore := view.Restore
	return r.writes.Change(ctx, restore, func() {
		controllerutil.AddFinalizer(restore, Finalizer)
		if len(restore.OwnerReferences) == 0 && view.VM != nil {
			restore.OwnerReferences = []metav1.OwnerReference{ownerOf(view.VM)}
		}
	})
}

func (r *Reconciler) removeFinalizer(ctx context.Context, view View, step *Step) error {
	if !step.RemoveFinalizer {
		return nil
	}
	return r.writes.RemoveFinalizer(ctx, view.Restore, Finalizer)
}

// rehearse asks the API server, and with it admission, whether it would take a VM, and returns why it would not.
func (r *Reconciler) rehearse(ctx context.Context, vm *v1.VirtualMachine) (trouble string, err error) {
	if vm == nil {
		return "", nil
	}
	// Not by r.writes: a dry run writes nothing.
	return wouldRefuse(vm, r.Client.Create(ctx, vm.DeepCopy(), client.DryRunAll))
}

// act writes all that is not the restore itself.
func (r *Reconciler) act(ctx context.Context, view View, step *Step) error {
	vm := view.VM
	if err := r.stop(ctx, vm, step.Stop); err != nil {
		return err
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

// stop asks for the end of the target's guest.
func (r *Reconciler) stop(ctx context.Context, vm *v1.VirtualMachine, stop runstrategy.Change) error {
	if stop.Strategy != "" {
		err := r.writes.Change(ctx, vm, func() { runstrategy.Set(&vm.Spec, stop.Strategy) })
		if err != nil {
			return fmt.Errorf("stop VM %s: %w", vm.Name, err)
		}
	}
	if stop.Requests != nil {
		err := frame.PatchStatus(ctx, r.writes, vm, &vm.Status.StateChangeRequests, stop.Requests)
		if err != nil {
			return fmt.Errorf("stop VM %s: %w", vm.Name, err)
		}
	}
	return nil
}
