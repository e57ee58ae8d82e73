package clonecontroller

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/virtkit/virtkit/pkg/frame"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// apply does what the step says, in the order of its fields.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	c := view.Clone
	if step.AddFinalizer {
		return r.writes.Change(ctx, c, func() { controllerutil.AddFinalizer(c, clones.Finalizer) })
	}
	if err := r.create(ctx, &view, step); err != nil {
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
	c := view.Clone
	if step.CreateSnapshot != nil {
		if err := r.writes.Create(ctx, step.CreateSnapshot); err != nil && !apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("failed creating snapshot %s for clone %s: %w", step.CreateSnapshot.Name, c.Name, err)
			return r.refused(ctx, view, err)
		}
	}
	for _, object := range step.Create {
		switch err := r.writes.Create(ctx, object); {
		case apierrors.IsAlreadyExists(err):
			return frame.ErrStale // it is looked at next time
		case err != nil:
			err = fmt.Errorf("failed creating %T %s for clone %s: %w", object, object.GetName(), c.Name, err)
			return r.refused(ctx, view, err)
		}
	}
	if len(step.Create) > 0 {
		step.RequeueAfter = frame.CatchUp
	}
	if step.CopyComplete {
		if err := r.ready(ctx, view); err != nil {
			return err
		}
	}
	if step.CreateRestore == nil {
		return nil
	}
	err := r.writes.Create(ctx, step.CreateRestore)
	switch {
	case apierrors.IsAlreadyExists(err):
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		refused := view.fail(reasonRestoreFailed,
			fmt.Sprintf("failed creating restore %s for clone %s: %v", step.CreateRestore.Name, c.Name, err))
		step.Events, step.Status = refused.Events, refused.Status
	case err != nil:
		err = fmt.Errorf("failed creating restore %s for clone %s: %w", step.CreateRestore.Name, c.Name, err)
		return r.refused(ctx, view, err)
	}
	return nil
}

// ready writes for the restore controller that the copy of a snapshot is whole, the content first.
func (r *Reconciler) ready(ctx context.Context, view *View) error {
	content, snapshot, origin := view.Content, view.Snapshot, view.Remote.Origin.Status
	err := frame.PatchStatus(ctx, r.writes, content, &content.Status, &v1beta1.VirtualMachineSnapshotContentStatus{
		ReadyToUse: new(true), CreationTime: origin.CreationTime,
	})
	if err == nil {
		err = frame.PatchStatus(ctx, r.writes, snapshot, &snapshot.Status, &v1beta1.VirtualMachineSnapshotStatus{
			Phase: v1beta1.Succeeded, ReadyToUse: new(true), SourceUID: origin.SourceUID,
			CreationTime:                      origin.CreationTime,
			Indications:                       origin.Indications, //nolint:staticcheck // KubeVirt fills it in, too
			VirtualMachineSnapshotContentName: &content.Name,
		})
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
		step.RequeueAfter = frame.CatchUp
	}
	for _, content := range step.DeleteContents {
		if _, err := r.writes.Delete(ctx, content); err != nil {
			return fmt.Errorf("cannot clean up VolumeSnapshotContent %s for clone %s: %w", content.Name, c.Name, err)
		}
		step.RequeueAfter = frame.CatchUp
	}
	for _, snapshot := range []*v1beta1.VirtualMachineSnapshot{step.DeleteSnapshot, step.DeleteOrigin} {
		if snapshot == nil {
			continue
		}
		if _, err := r.writes.Delete(ctx, snapshot); err != nil {
			return fmt.Errorf("cannot clean up snapshot %s for clone %s: %w", snapshot.Name, c.Name, err)
		}
		step.RequeueAfter = frame.CatchUp
	}
	return nil
}

// refused says in the clone's conditions what the API server refused, a quota for example, and returns the error, so
// that it is tried again.
func (r *Reconciler) refused(ctx context.Context, view *View, refusal error) error {
	if !frame.Refused(refusal) || view.Clone.DeletionTimestamp != nil {
		return refusal
	}
	status := view.saying(refusal.Error())
	if status == nil {
		return refusal
	}
	return errors.Join(refusal, frame.PatchStatus(ctx, r.writes, view.Clone, &view.Clone.Status, *status))
}
