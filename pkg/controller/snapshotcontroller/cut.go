package snapshotcontroller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// cut makes the VolumeSnapshots while the guest does not write. After an error it lets the guest go.
func (r *Contents) cut(ctx context.Context, view ContentView, step *ContentStep) error {
	content := view.Content
	if err := r.rehearse(ctx, view, step); err != nil {
		step.Window = nil
		return err
	}
	if step.SaveMemory {
		if err := r.remember(ctx, content, step.Window); err != nil {
			return err
		}
		done, err := r.saveMemory(ctx, view, step)
		if err != nil {
			return r.letGo(ctx, view, step, err)
		}
		if !done {
			step.RequeueAfter = saveLook
			return nil
		}
	} else if step.Freeze {
		if err := r.freeze(ctx, view, step); err != nil {
			return r.letGo(ctx, view, step, err)
		}
	}
	if err := r.create(ctx, content, step.Create); err != nil {
		return r.letGo(ctx, view, step, err)
	}
	if !step.Freeze && !step.SaveMemory {
		r.tell(content, step.Create)
	}
	return nil
}

// tell has an event of each VolumeSnapshot that was made, once no guest waits for them any more.
func (r *Contents) tell(content *v1beta1.VirtualMachineSnapshotContent, made []*snapshotv1.VolumeSnapshot) {
	for _, snapshot := range made {
		r.Recorder.Eventf(content, eventNormal, ReasonVolumeSnapshotCreated, "Successfully created VolumeSnapshot %s",
			snapshot.Name)
	}
}

// freeze freezes the guest and remembers it meanwhile, so that a virt-controller that starts anew undoes it. One that
// ends between the two leaves a content that has nothing yet, at whose end the guest is thawed, too.
func (r *Contents) freeze(ctx context.Context, view ContentView, step *ContentStep) error {
	vmi, most := vmiOf(view.Content), max(step.Window.Until.Sub(r.Now()), time.Second)
	var quiesced snapshots.Quiesced
	var group errgroup.Group
	group.Go(func() (err error) {
		quiesced, err = r.Freezer.Freeze(ctx, vmi, most)
		return err
	})
	remembered := r.remember(ctx, view.Content, step.Window)
	err := errors.Join(group.Wait(), remembered)
	step.Window.Quiesced = quiesced
	return err
}

// rehearse asks the API server, after an error, whether it would take the VolumeSnapshots now. A guest is not frozen
// again and again for what is refused, by a quota for example.
func (r *Contents) rehearse(ctx context.Context, view ContentView, step *ContentStep) error {
	status, window := view.Content.Status, windowOf(view.Content.Annotations)
	failed := status != nil && status.Error != nil
	if !failed || !step.Freeze && !step.SaveMemory || window != nil && !window.Closed {
		return nil
	}
	return errors.Join(all(step.Create, func(snapshot *snapshotv1.VolumeSnapshot) error {
		// Not by r.writes: a dry run writes nothing.
		return client.IgnoreAlreadyExists(r.Client.Create(ctx, snapshot.DeepCopy(), client.DryRunAll))
	})...)
}

// create makes the VolumeSnapshots of a content.
func (r *Contents) create(
	ctx context.Context, content *v1beta1.VirtualMachineSnapshotContent, list []*snapshotv1.VolumeSnapshot,
) error {
	// One that exists is of a moment ago; its event will come.
	errs := all(list, func(snapshot *snapshotv1.VolumeSnapshot) error {
		return client.IgnoreAlreadyExists(r.writes.CreateCounted(ctx, content, snapshot, r.Now()))
	})
	for i, snapshot := range list {
		if errs[i] != nil || snapshot.UID == "" {
			continue
		}
		r.Recorder.Eventf(content, eventNormal, ReasonVolumeSnapshotCreated, "Successfully created VolumeSnapshot %s",
			snapshot.Name)
	}
	return errors.Join(errs...)
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
