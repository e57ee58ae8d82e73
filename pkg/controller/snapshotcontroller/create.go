package snapshotcontroller

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/frame"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// createContent makes what the snapshot has of its VM: the spec and the claims that can be snapshotted.
func (r *Reconciler) createContent(ctx context.Context, view View) error {
	snapshot := view.Snapshot
	source, err := r.source(ctx, view)
	if err != nil {
		return err
	}
	content := &v1beta1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: snapshot.Namespace, Name: snapshots.ContentName(snapshot),
			Finalizers: []string{snapshots.ContentFinalizer},
		},
		Spec: v1beta1.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: &snapshot.Name, Source: v1beta1.SourceSpec{VirtualMachine: source},
		},
	}
	if snapshots.WantsMemory(snapshot) {
		metav1.SetMetaDataAnnotation(&content.ObjectMeta, savedmemory.IncludeAnnotation, "true")
	}
	for _, volume := range view.Volumes {
		if volume.Reason != "" {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := types.NamespacedName{Namespace: snapshot.Namespace, Name: volume.Claim}
		if err := r.Live.Get(ctx, key, claim); err != nil {
			return fmt.Errorf("get claim %s: %w", volume.Claim, err)
		}
		claim.ManagedFields = nil
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, v1beta1.VolumeBackup{
			VolumeName: volume.Name,
			PersistentVolumeClaim: v1beta1.PersistentVolumeClaim{
				ObjectMeta: claim.ObjectMeta, Spec: claim.Spec,
			},
			VolumeSnapshotName: new(snapshots.VolumeSnapshotName(snapshot.UID, volume.Name)),
		})
	}
	err = r.writes.Create(ctx, content)
	if apierrors.IsAlreadyExists(err) {
		return nil // of a moment ago: its event will come
	}
	if err != nil {
		return fmt.Errorf("create content %s: %w", content.Name, err)
	}
	r.Recorder.Eventf(snapshot, corev1.EventTypeNormal, ReasonContentCreated,
		"Successfully created VirtualMachineSnapshotContent %s", content.Name)
	return nil
}

// source is what the content has of the VM, with copies of what its instance type and preference are.
func (r *Reconciler) source(ctx context.Context, view View) (*v1beta1.VirtualMachine, error) {
	var started *appsv1.ControllerRevision
	if guestOf(view.VMI) != NoGuest && view.VMI.Status.VirtualMachineRevisionName != "" {
		found, err := r.revision(ctx, view, view.VMI.Status.VirtualMachineRevisionName)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			started = found
		}
	}
	source, err := sourceOf(view.VM, view.VMI, started)
	if err != nil {
		return nil, err
	}
	if m := source.Spec.Instancetype; m != nil && m.RevisionName != "" {
		if m.RevisionName, err = r.copyRevision(ctx, view, m.RevisionName); err != nil {
			return nil, err
		}
	}
	if m := source.Spec.Preference; m != nil && m.RevisionName != "" {
		if m.RevisionName, err = r.copyRevision(ctx, view, m.RevisionName); err != nil {
			return nil, err
		}
	}
	return source, nil
}

func (r *Reconciler) revision(ctx context.Context, view View, name string) (*appsv1.ControllerRevision, error) {
	found := &appsv1.ControllerRevision{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: view.Snapshot.Namespace, Name: name}, found)
	if err != nil {
		return nil, fmt.Errorf("get ControllerRevision %s: %w", name, err)
	}
	return found, nil
}

// copyRevision makes the snapshot's own copy of a revision, and returns its name.
func (r *Reconciler) copyRevision(ctx context.Context, view View, name string) (string, error) {
	revision, err := r.revision(ctx, view, name)
	if err != nil {
		return "", err
	}
	own := copyOf(revision, view.Snapshot)
	if err := r.Client.Create(ctx, own); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("copy ControllerRevision %s: %w", name, err)
	}
	return own.Name, nil
}

// refused tells of a content that the API server refuses, because of a quota for example. It is tried again.
func (r *Reconciler) refused(ctx context.Context, view View, step *Step, failed error) error {
	if !apierrors.IsForbidden(failed) && !apierrors.IsInvalid(failed) {
		return failed
	}
	if old := step.Status.Error; old == nil || old.Message == nil || *old.Message != failed.Error() {
		step.Status.Error = newError(view.Now, failed.Error())
	}
	snapshot := view.Snapshot
	return errors.Join(failed, frame.PatchStatus(ctx, r.writes, snapshot, &snapshot.Status, step.Status))
}
