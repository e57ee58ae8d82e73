package clonecontroller

import (
	"context"
	"errors"
	"fmt"

	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// apply does what the step says, in the order of its fields.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	c := view.Clone
	if step.AddFinalizer {
		return r.writes.Change(ctx, c, func() { controllerutil.AddFinalizer(c, clones.Finalizer) })
	}
	if err := r.create(ctx, &view, step); err != nil {
		if step.refused != nil {
			err = errors.Join(err, frame.PatchStatus(ctx, r.writes, c, &c.Status, *step.refused))
		}
		return err
	}
	if err := r.remove(ctx, c, step); err != nil {
		return err
	}
	if step.DeleteClone {
		_, err := r.writes.Delete(ctx, c)
		return err
	}
	for _, event := range step.Events {
		r.Recorder.Event(c, event.Type, event.Reason, event.Message)
	}
	if step.Status != nil {
		if err := frame.PatchStatus(ctx, r.writes, c, &c.Status, *step.Status); err != nil {
			return err
		}
	}
	if step.RemoveFinalizer {
		return r.writes.RemoveFinalizer(ctx, c, clones.Finalizer)
	}
	return nil
}

// create makes the snapshot, its copy and the restore.
func (r *Reconciler) create(ctx context.Context, view *View, step *Step) error {
	if step.CreateSnapshot != nil {
		if err := step.madeSnapshot(view, r.writes.Create(ctx, step.CreateSnapshot)); err != nil {
			return err
		}
	}
	for _, object := range step.Create {
		if err := step.madeCopy(view, object, r.writes.Create(ctx, object)); err != nil {
			return err
		}
	}
	if step.Copied != nil {
		if err := r.ready(ctx, view, step.Copied); err != nil {
			return err
		}
	}
	if step.CreateRestore != nil {
		return step.madeRestore(view, r.writes.Create(ctx, step.CreateRestore))
	}
	return nil
}

// ready writes for the restore controller that the copy of a snapshot is whole.
func (r *Reconciler) ready(ctx context.Context, view *View, copied *Copied) error {
	err := frame.PatchStatus(ctx, r.writes, view.Content, &view.Content.Status, &copied.Content)
	if err == nil {
		err = frame.PatchStatus(ctx, r.writes, view.Snapshot, &view.Snapshot.Status, &copied.Snapshot)
	}
	if err != nil {
		return fmt.Errorf("make the copy of snapshot %s ready: %w", view.origin(), err)
	}
	return nil
}

// remove deletes what is temporary.
func (r *Reconciler) remove(ctx context.Context, c *clonev1beta1.VirtualMachineClone, step *Step) error {
	if step.DeleteRestore != nil {
		if _, err := r.writes.Delete(ctx, step.DeleteRestore); err != nil {
			return fmt.Errorf("cannot clean up restore %s for clone %s: %w", step.DeleteRestore.Name, c.Name, err)
		}
	}
	for _, snapshot := range step.DeleteVolumes {
		if _, err := r.writes.Delete(ctx, snapshot); err != nil {
			return fmt.Errorf("cannot clean up VolumeSnapshot %s for clone %s: %w", snapshot.Name, c.Name, err)
		}
	}
	for _, content := range step.DeleteContents {
		if _, err := r.writes.Delete(ctx, content); err != nil {
			return fmt.Errorf("cannot clean up VolumeSnapshotContent %s for clone %s: %w", content.Name, c.Name, err)
		}
	}
	for _, snapshot := range []*v1beta1.VirtualMachineSnapshot{step.DeleteSnapshot, step.DeleteOrigin} {
		if snapshot == nil {
			continue
		}
		if _, err := r.writes.Delete(ctx, snapshot); err != nil {
			return fmt.Errorf("cannot clean up snapshot %s for clone %s: %w", snapshot.Name, c.Name, err)
		}
	}
	return nil
}
