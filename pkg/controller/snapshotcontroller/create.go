package snapshotcontroller

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
)

// begin locks the VM and makes the content. What that is made of is read meanwhile; the lock fails when the VM is not
// what it was. The status follows with the event of the content.
func (r *Reconciler) begin(ctx context.Context, view View, step *Step) error {
	var of originals
	var group errgroup.Group
	if step.CreateContent {
		unlocked := view
		unlocked.VM = view.VM.DeepCopy() // the lock changes the other
		group.Go(func() (err error) {
			of, err = r.read(ctx, unlocked)
			return err
		})
	}
	locked := r.lock(ctx, view)
	if err := errors.Join(locked, group.Wait()); err != nil {
		return err
	}
	group.Go(func() error { return r.addSourceFinalizer(ctx, view) })
	if !step.CreateContent {
		return group.Wait()
	}
	made := r.createContent(ctx, view, of)
	added := group.Wait()
	if made == nil {
		return added
	}
	if status := step.refused(view, made); status != nil {
		made = errors.Join(made, frame.PatchStatus(ctx, r.writes, view.Snapshot, &view.Snapshot.Status, status))
	}
	return errors.Join(added, made)
}

// read reads all that a content is made of at once, past the cache, which does not have everything.
func (r *Reconciler) read(ctx context.Context, view View) (originals, error) {
	group, groupCtx := errgroup.WithContext(ctx)
	var out originals
	for _, volume := range view.Volumes {
		if volume.Reason != "" {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		out.claims = append(out.claims, claim)
		group.Go(func() error {
			key := types.NamespacedName{Namespace: view.Snapshot.Namespace, Name: volume.Claim}
			if err := r.Live.Get(groupCtx, key, claim); err != nil {
				return fmt.Errorf("get claim %s: %w", volume.Claim, err)
			}
			return nil
		})
	}
	var started *appsv1.ControllerRevision
	if guestOf(view.VMI) != NoGuest && view.VMI.Status.VirtualMachineRevisionName != "" {
		group.Go(func() error {
			found, err := r.revision(groupCtx, view, view.VMI.Status.VirtualMachineRevisionName)
			if err == nil {
				started = found
			}
			return client.IgnoreNotFound(err)
		})
	}
	if err := group.Wait(); err != nil {
		return out, err
	}
	var err error
	if out.vm, err = sourceOf(view.VM, view.VMI, started); err != nil {
		return out, err
	}
	for _, name := range instancetype.RevisionNames(&out.vm.Spec) {
		revision, err := r.revision(ctx, view, name)
		if err != nil {
			return out, err
		}
		out.revisions = append(out.revisions, revision)
	}
	return out, nil
}

func (r *Reconciler) revision(ctx context.Context, view View, name string) (*appsv1.ControllerRevision, error) {
	found := &appsv1.ControllerRevision{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: view.Snapshot.Namespace, Name: name}, found)
	if err != nil {
		return nil, fmt.Errorf("get ControllerRevision %s: %w", name, err)
	}
	return found, nil
}

// createContent makes the content, after the copies of ControllerRevisions that it names. What already exists was made
// a moment ago: its event will come.
func (r *Reconciler) createContent(ctx context.Context, view View, of originals) error {
	content, err := newContent(view, of)
	if err != nil {
		return err
	}
	for _, revision := range of.revisions {
		err := r.writes.Create(ctx, copyOf(revision, view.Snapshot))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("copy ControllerRevision %s: %w", revision.Name, err)
		}
	}
	err = r.writes.Create(ctx, content)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create content %s: %w", content.Name, err)
	}
	r.Recorder.Eventf(view.Snapshot, corev1.EventTypeNormal, ReasonContentCreated,
		"Successfully created VirtualMachineSnapshotContent %s", content.Name)
	return nil
}
