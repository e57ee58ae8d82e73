package snapshotcontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
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

// parts is what a content is made of and the cache has not.
type parts struct {
	// claims are those that can be snapshotted, in the order of their volumes.
	claims []*corev1.PersistentVolumeClaim
	// started is what the guest that runs was started with, nil when there is none.
	started *appsv1.ControllerRevision
}

// gather reads all parts at once.
func (r *Reconciler) gather(ctx context.Context, view View) (parts, error) {
	group, ctx := errgroup.WithContext(ctx)
	var out parts
	for _, volume := range view.Volumes {
		if volume.Reason != "" {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		out.claims = append(out.claims, claim)
		group.Go(func() error {
			key := types.NamespacedName{Namespace: view.Snapshot.Namespace, Name: volume.Claim}
			if err := r.Live.Get(ctx, key, claim); err != nil {
				return fmt.Errorf("get claim %s: %w", volume.Claim, err)
			}
			claim.ManagedFields = nil
			return nil
		})
	}
	var started *appsv1.ControllerRevision
	if guestOf(view.VMI) != NoGuest && view.VMI.Status.VirtualMachineRevisionName != "" {
		group.Go(func() error {
			found, err := r.revision(ctx, view, view.VMI.Status.VirtualMachineRevisionName)
			if err == nil {
				started = found
			}
			return client.IgnoreNotFound(err)
		})
	}
	err := group.Wait()
	out.started = started
	return out, err
}

// createContent makes what the snapshot has of its VM: the spec and the claims that can be snapshotted.
func (r *Reconciler) createContent(ctx context.Context, view View, of parts) error {
	snapshot := view.Snapshot
	source, err := r.source(ctx, view, of.started)
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
	if err := openWindow(view, content, len(of.claims)); err != nil {
		return err
	}
	claims := of.claims
	for _, volume := range view.Volumes {
		if volume.Reason != "" {
			continue
		}
		claim := claims[0]
		claims = claims[1:]
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

// openWindow has a new content say that its guest may be frozen, when it is to be: a write of its own would come while
// the guest waits.
func openWindow(view View, content *v1beta1.VirtualMachineSnapshotContent, claims int) error {
	if guestOf(view.VMI) != GuestRunning || snapshots.WantsMemory(view.Snapshot) || claims == 0 {
		return nil
	}
	text, err := json.Marshal(newWindow(view.Snapshot, view.VMI.UID, view.Now))
	if err != nil {
		return fmt.Errorf("encode what is known of a freeze: %w", err)
	}
	metav1.SetMetaDataAnnotation(&content.ObjectMeta, WindowAnnotation, string(text))
	return nil
}

// source is what the content has of the VM, with copies of what its instance type and preference are.
func (r *Reconciler) source(
	ctx context.Context, view View, started *appsv1.ControllerRevision,
) (*v1beta1.VirtualMachine, error) {
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
	if err := r.writes.Create(ctx, own); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("copy ControllerRevision %s: %w", name, err)
	}
	return own.Name, nil
}

// refused reports a content that the API server refuses, because of a quota for example. It is tried again.
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
