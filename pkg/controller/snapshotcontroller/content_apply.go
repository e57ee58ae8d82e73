package snapshotcontroller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// contentWrites carry out a ContentStep, in this order. Each does its part of the step, and nothing when the step has
// none; what the guest and the API server answer changes the rest of the step (content_answers.go). The order
// is a promise:
//
//   - no guest is frozen before it is on record, or while that is being written, so that it is thawed whatever happens;
//   - what keeps the VolumeSnapshots from being made is followed by the thaw;
//   - only writes that a frozen guest waits for come before the thaw;
//   - the record comes before the status: the snapshot says how the guest was quiesced when it is made.
var contentWrites = []func(*Contents, context.Context, ContentView, *ContentStep) error{
	(*Contents).createClaim,
	(*Contents).changeVMI,
	(*Contents).rehearse,
	(*Contents).saveMemory,
	(*Contents).freeze,
	(*Contents).create,
	(*Contents).thaw,
	(*Contents).remember,
	(*Contents).recordEvents,
	(*Contents).writeStatus,
	(*Contents).removeFinalizer,
}

// apply does what the step says.
func (r *Contents) apply(ctx context.Context, view ContentView, step *ContentStep) error {
	for _, write := range contentWrites {
		if err := write(r, ctx, view, step); err != nil {
			return err
		}
	}
	return nil
}

func (r *Contents) createClaim(ctx context.Context, _ ContentView, step *ContentStep) error {
	if step.CreateClaim == nil {
		return nil
	}
	if err := r.writes.Create(ctx, step.CreateClaim); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create claim for the guest's memory: %w", err)
	}
	return nil
}

func (r *Contents) changeVMI(ctx context.Context, view ContentView, step *ContentStep) error {
	if step.VMI == nil {
		return nil
	}
	if err := r.writes.Patch(ctx, view.Memory.VMI, step.VMI); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("give VMI %s the volume for its guest's memory, or take it away: %w", step.VMI.Name, err)
	}
	return nil
}

// rehearse asks the API server whether it would take the VolumeSnapshots now.
func (r *Contents) rehearse(ctx context.Context, view ContentView, step *ContentStep) error {
	if !step.Rehearse {
		return nil
	}
	err := errors.Join(all(step.Create, func(snapshot *snapshotv1.VolumeSnapshot) error {
		// Not by r.writes: a dry run writes nothing.
		return client.IgnoreAlreadyExists(r.Client.Create(ctx, snapshot.DeepCopy(), client.DryRunAll))
	})...)
	if err != nil {
		step.rehearsalFailed(&view, err)
	}
	return nil
}

// saveMemory has the memory of the guest, which is paused from here on, written. It is called until that is done.
func (r *Contents) saveMemory(ctx context.Context, view ContentView, step *ContentStep) error {
	if !step.SaveMemory {
		return nil
	}
	if err := r.remember(ctx, view, step); err != nil {
		return err
	}
	var saved savedmemory.Saved
	err := errors.New("nobody can save the guest's memory")
	if r.Memory != nil {
		most := step.Record.most(r.Now())
		saved, err = r.Memory.SaveMemory(ctx, vmiOf(view.Content), memoryVolume(view.Content), most)
	}
	switch {
	case err == nil:
		err = step.memorySaved(&view, saved)
	case unanswered(err):
		step.saveUnanswered(&view, err)
		return nil
	}
	if step.Memory != nil { // before there are VolumeSnapshots of it
		err = errors.Join(err, r.remember(ctx, view, step))
	}
	if err != nil {
		step.freezeFailed(&view, err)
	}
	return nil
}

// freeze freezes the guest and remembers it meanwhile, so that a virt-controller that starts anew undoes it. One that
// ends between the two leaves a content that has nothing yet, at whose end the guest is thawed, too.
func (r *Contents) freeze(ctx context.Context, view ContentView, step *ContentStep) error {
	if !step.Freeze || step.SaveMemory {
		return nil
	}
	vmi, most := vmiOf(view.Content), step.Record.most(r.Now())
	var how snapshots.Quiesced
	var group errgroup.Group
	group.Go(func() (err error) {
		how, err = r.Freezer.Freeze(ctx, vmi, most)
		return err
	})
	remembered := r.remember(ctx, view, step)
	if err := errors.Join(group.Wait(), remembered); err != nil {
		step.freezeFailed(&view, err)
		return nil
	}
	step.frozen(how)
	return nil
}

// create makes the VolumeSnapshots.
func (r *Contents) create(ctx context.Context, view ContentView, step *ContentStep) error {
	err := errors.Join(all(step.Create, func(snapshot *snapshotv1.VolumeSnapshot) error {
		// One that exists is of a moment ago; its event will come.
		return client.IgnoreAlreadyExists(r.writes.CreateCounted(ctx, view.Content, snapshot, r.Now()))
	})...)
	step.created(&view, err)
	return nil
}

// all creates all VolumeSnapshots at once, since a guest waits for them, and returns the error of each.
func all(list []*snapshotv1.VolumeSnapshot, create func(*snapshotv1.VolumeSnapshot) error) []error {
	errs := make([]error, len(list))
	var group sync.WaitGroup
	for i, snapshot := range list {
		group.Go(func() {
			if err := create(snapshot); err != nil {
				errs[i] = fmt.Errorf("create VolumeSnapshot %s: %w", snapshot.Name, err)
			}
		})
	}
	group.Wait()
	return errs
}

// thaw lets the guest write again.
func (r *Contents) thaw(ctx context.Context, view ContentView, step *ContentStep) error {
	if !step.Thaw {
		return nil
	}
	err := r.Freezer.Unfreeze(ctx, vmiOf(view.Content))
	failed := step.thawed(&view, err, r.Now())
	if err != nil && failed == nil {
		ctrl.LoggerFrom(ctx).Info("a guest is not thawed", "err", err)
	}
	return failed
}

// remember writes what is known of the freeze and of the guest's memory, unless the content has it.
func (r *Contents) remember(ctx context.Context, view ContentView, step *ContentStep) error {
	content := view.Content
	annotations, err := step.annotations(content)
	if err != nil || len(annotations) == 0 {
		return err
	}
	err = r.writes.Change(ctx, content, func() {
		for key, text := range annotations {
			metav1.SetMetaDataAnnotation(&content.ObjectMeta, key, text)
		}
	})
	if err != nil {
		return fmt.Errorf("remember the freeze of a guest: %w", err)
	}
	return nil
}

func (r *Contents) recordEvents(ctx context.Context, view ContentView, step *ContentStep) error {
	if step.failure != nil {
		ctrl.LoggerFrom(ctx).Info("the volumes of a snapshot cannot be snapshotted", "err", step.failure)
	}
	for _, event := range step.Events {
		r.Recorder.Event(view.Content, event.Type, event.Reason, event.Message)
	}
	return nil
}

func (r *Contents) writeStatus(ctx context.Context, view ContentView, step *ContentStep) error {
	if step.Status == nil || step.Later {
		return nil
	}
	return frame.PatchStatus(ctx, r.writes, view.Content, &view.Content.Status, step.Status)
}

func (r *Contents) removeFinalizer(ctx context.Context, view ContentView, step *ContentStep) error {
	if !step.RemoveFinalizer {
		return nil
	}
	return r.writes.RemoveFinalizer(ctx, view.Content, snapshots.ContentFinalizer)
}
