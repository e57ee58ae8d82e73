package vmcontroller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/virtkit/virtkit/pkg/controller/cdi"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// writes carry a step out, in the order of its fields. Each writes only what the step asks for, and one that fails
// ends the rest, on which the next step decides anew:
//
//   - the finalizer before there is a VMI, so that no VM vanishes while it has one; with it the MAC addresses;
//   - the revisions and DataVolumes that a VMI is made from, before the VMI;
//   - the status after the VMI was made, since it reports that, also when it failed; and before the VMI is deleted,
//     since it has what is to be remembered about it;
//   - the finalizer is removed last.
var writes = []func(*Reconciler, context.Context, View, *Step) error{
	(*Reconciler).addFinalizer,
	(*Reconciler).writeAddresses,
	(*Reconciler).forgetResume,
	(*Reconciler).keepRevisions,
	(*Reconciler).changeVMI,
	(*Reconciler).recordEvents,
	(*Reconciler).setStrategy,
	(*Reconciler).createDataVolumes,
	(*Reconciler).create,
	(*Reconciler).writeStatus,
	(*Reconciler).delete,
	(*Reconciler).removeFinalizer,
}

// apply does what the step says.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if step.Invalid != nil {
		return step.Invalid
	}
	for _, write := range writes {
		if err := write(r, ctx, view, step); err != nil {
			return err
		}
	}
	return step.failed
}

func (r *Reconciler) addFinalizer(ctx context.Context, view View, step *Step) error {
	if !step.AddFinalizer {
		return nil
	}
	return r.writes.Change(ctx, view.VM,
		func() {
			controllerutil.AddFinalizer(view.VM, v1.VirtualMachineControllerFinalizer)
			step.record(view.VM)
			step.MACs, step.IPs = "", "" // are written
		})
}

func (r *Reconciler) forgetResume(ctx context.Context, view View, step *Step) error {
	if !step.Resumed {
		return nil
	}
	err := r.writes.Change(ctx, view.VM, func() { delete(view.VM.Annotations, savedmemory.ResumeAnnotation) })
	if err != nil {
		return fmt.Errorf("take annotation %s from VM %s: %w", savedmemory.ResumeAnnotation, view.VM.Name, err)
	}
	return nil
}

// keepRevisions makes the copies of what the VM refers to.
func (r *Reconciler) keepRevisions(ctx context.Context, _ View, step *Step) error {
	for _, revision := range step.Revisions {
		err := r.writes.Create(ctx, revision)
		if apierrors.IsAlreadyExists(err) {
			there := &appsv1.ControllerRevision{}
			if err = r.Live.Get(ctx, client.ObjectKeyFromObject(revision), there); err == nil &&
				!step.keeps(there, revision) {
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("keep a copy of what the VM refers to, %s: %w", revision.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) changeVMI(ctx context.Context, view View, step *Step) error {
	if step.VMI == nil {
		return nil
	}
	if err := r.writes.Patch(ctx, view.VMI, step.VMI); err != nil {
		return fmt.Errorf("change VMI %s: %w", step.VMI.Name, err)
	}
	return nil
}

func (r *Reconciler) recordEvents(_ context.Context, view View, step *Step) error {
	r.record(view.VM, step.Events)
	return nil
}

func (r *Reconciler) record(vm *v1.VirtualMachine, events []vmicontroller.Event) {
	for _, event := range events {
		r.Recorder.Event(vm, event.Type, event.Reason, event.Message)
	}
}

// setStrategy changes the run strategy, in the field that the VM uses for it.
func (r *Reconciler) setStrategy(ctx context.Context, view View, step *Step) error {
	if step.Strategy == "" {
		return nil
	}
	vm := view.VM
	err := r.writes.Change(ctx, vm, func() { runstrategy.Set(&vm.Spec, step.Strategy) })
	if err != nil {
		return fmt.Errorf("write spec.runStrategy: %w", err)
	}
	return nil
}

// createDataVolumes makes them until one may not or cannot be made.
func (r *Reconciler) createDataVolumes(ctx context.Context, view View, step *Step) error {
	for _, template := range step.DataVolumes {
		dv := cdi.New(view.VM, template)
		err := cdi.Authorize(ctx, r.Client, r.Live, view.VM, dv)
		if err == nil {
			err = r.writes.Create(ctx, dv)
		}
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if r.record(view.VM, step.madeDataVolume(dv, err)); step.After.Failure != "" {
			return nil
		}
	}
	return nil
}

// create makes the VMI, after the copy of the spec that it is made from. An error is reported in the status first.
func (r *Reconciler) create(ctx context.Context, view View, step *Step) error {
	if step.Create == nil {
		return nil
	}
	step.failed = r.keepStart(ctx, step)
	if step.failed == nil {
		return r.createVMI(ctx, view, step)
	}
	return nil
}

func (r *Reconciler) createVMI(ctx context.Context, view View, step *Step) error {
	err := r.writes.Create(ctx, step.Create)
	if apierrors.IsAlreadyExists(err) {
		return frame.ErrStale // mostly our own of a moment ago
	}
	r.record(view.VM, step.madeVMI(err))
	return nil
}

// keepStart makes the revision of a start, and removes those of earlier ones.
func (r *Reconciler) keepStart(ctx context.Context, step *Step) error {
	if err := r.writes.Create(ctx, step.Start); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep the spec that the VM is started with, %s: %w", step.Start.Name, err)
	}
	for _, old := range step.DropStarts {
		if _, err := r.writes.Delete(ctx, old); err != nil {
			return fmt.Errorf("remove the spec of an earlier start, %s: %w", old.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, view View, step *Step) error {
	if !step.Status {
		return nil
	}
	return frame.PatchStatus(ctx, r.writes, view.VM, &view.VM.Status, Status(step.After, step.Decision))
}

func (r *Reconciler) delete(ctx context.Context, view View, step *Step) error {
	if !step.Delete {
		return nil
	}
	deleted, err := r.writes.Delete(ctx, view.VMI)
	if err != nil {
		r.Recorder.Eventf(view.VM, corev1.EventTypeWarning, vmicontroller.ReasonFailedDelete,
			"Error deleting virtual machine instance %s: %v", view.VMI.Name, err)
		return fmt.Errorf("delete VMI: %w", err)
	}
	if deleted {
		r.Recorder.Eventf(view.VM, corev1.EventTypeNormal, vmicontroller.ReasonSuccessfulDelete,
			"Stopped the virtual machine by deleting the virtual machine instance %s", view.VMI.Name)
	}
	return nil
}

func (r *Reconciler) removeFinalizer(ctx context.Context, view View, step *Step) error {
	if !step.RemoveFinalizer {
		return nil
	}
	return r.writes.RemoveFinalizer(ctx, view.VM, v1.VirtualMachineControllerFinalizer)
}
