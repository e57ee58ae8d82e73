package migrationcontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// lookAtDisks gathers what a migration that brings disks depends on. The VM is read past the cache: what it names now
// decides whether claims are deleted. One that is over and tidied up depends on nothing any more.
func (r *Reconciler) lookAtDisks(ctx context.Context, view *View) error {
	m := view.Migration
	tidied := m.IsFinal() && !slices.Contains(m.Finalizers, volumemigration.WithDisksFinalizer)
	if !volumemigration.WithDisks(m) || m.IsRunning() && !m.IsFinal() || tidied {
		return nil
	}
	d := &Disks{Claims: map[string]*corev1.PersistentVolumeClaim{}, Staged: r.Config().LiveUpdate == nil}
	vm := &v1.VirtualMachine{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}, vm)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get VirtualMachine %s: %w", m.Spec.VMIName, err)
	case m.IsFinal() || view.VMI != nil && metav1.IsControlledBy(view.VMI, vm):
		d.VM = vm
	}
	view.Disks = d
	if m.IsFinal() {
		return r.lookAtMade(ctx, m, d)
	}
	var list corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &list, client.InNamespace(m.Namespace)); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	for i := range list.Items {
		d.Claims[list.Items[i].Name] = &list.Items[i]
	}
	return nil
}

// lookAtMade finds the claims that a migration says it has made, and the pods that use them. Both are read past the
// cache: it may not have a claim yet that was made a moment ago, and does not keep the volumes of pods.
func (r *Reconciler) lookAtMade(ctx context.Context, m *v1.VirtualMachineInstanceMigration, d *Disks) error {
	for _, made := range volumemigration.MadeBy(&m.Status) {
		claim := &corev1.PersistentVolumeClaim{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: made.Claim}, claim)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get claim %s: %w", made.Claim, err)
		}
		if err == nil {
			d.Claims[made.Claim] = claim
		}
	}
	if len(d.Claims) == 0 {
		return nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(m.Namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	d.Pods = map[string]string{}
	for name := range d.Claims {
		for i := range pods.Items {
			if claims.UsedBy(&pods.Items[i], name) {
				d.Pods[name] = pods.Items[i].Name
			}
		}
	}
	return nil
}

// applyDisks writes what a step does about disks.
func (r *Reconciler) applyDisks(ctx context.Context, view View, step *Step) error {
	for _, claim := range step.MakeClaims {
		if err := r.makeCopy(ctx, view, step, claim); err != nil {
			return err
		}
	}
	if len(step.Copied) > 0 {
		text, err := json.Marshal(step.Copied)
		if err != nil {
			return fmt.Errorf("encode what is copied: %w", err)
		}
		err = r.writes.Change(ctx, view.Migration, func() {
			metav1.SetMetaDataAnnotation(&view.Migration.ObjectMeta, volumemigration.CopiedAnnotation, string(text))
		})
		if err != nil {
			return fmt.Errorf("say what is copied: %w", err)
		}
	}
	if len(step.PatchVM) > 0 {
		patch, err := json.Marshal(step.PatchVM)
		if err != nil {
			return fmt.Errorf("encode the patch of the VM: %w", err)
		}
		err = r.writes.PatchAs(ctx, view.Disks.VM, client.RawPatch(types.JSONPatchType, patch))
		if frame.Refused(err) && !view.Migration.IsFinal() {
			return r.refuse(ctx, view, step, fmt.Sprintf("the VM cannot name the new claims: %v", err))
		}
		if err != nil {
			return fmt.Errorf("change the claims of VirtualMachine %s: %w", view.Disks.VM.Name, err)
		}
		if step.Said != "" {
			r.Recorder.Event(view.Disks.VM, corev1.EventTypeNormal, ReasonDisksBrought, step.Said)
		}
	}
	for _, claim := range step.DropClaims {
		deleted, err := r.writes.Delete(ctx, claim)
		if err != nil {
			return fmt.Errorf("delete claim %s: %w", claim.Name, err)
		}
		if deleted {
			r.Recorder.Eventf(view.Migration, corev1.EventTypeNormal, ReasonSuccessfulDelete,
				"Deleted PersistentVolumeClaim %s, to which no disk has moved", claim.Name)
		}
	}
	return nil
}

// makeCopy makes a claim to which a disk is copied, and has the step's status say its UID. What the API server does not
// want, a quota above all, ends the migration: nothing has begun.
func (r *Reconciler) makeCopy(
	ctx context.Context, view View, step *Step, claim *corev1.PersistentVolumeClaim,
) error {
	volume := claim.Labels[volumemigration.CopiedVolumeLabel]
	switch err := r.writes.Create(ctx, claim); {
	case err == nil:
		r.Recorder.Eventf(view.Migration, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created PersistentVolumeClaim %s for the disk of volume %s", claim.Name, volume)
		return volumemigration.NoteMade(&step.Status, claim, view.Now)
	case apierrors.IsAlreadyExists(err):
		return frame.ErrStale
	case frame.Refused(err):
		return r.refuse(ctx, view, step,
			fmt.Sprintf("PersistentVolumeClaim %s for the disk of volume %q: %v", claim.Name, volume, err))
	default:
		r.Recorder.Eventf(view.Migration, corev1.EventTypeWarning, ReasonFailedCreate,
			"Error creating PersistentVolumeClaim %s: %v", claim.Name, err)
		return fmt.Errorf("create claim %s: %w", claim.Name, err)
	}
}

// refuse ends a migration before it has begun, with what the step has said so far.
func (r *Reconciler) refuse(ctx context.Context, view View, step *Step, reason string) error {
	step.fail(view, reason)
	if err := frame.PatchStatus(ctx, r.writes, view.Migration, &view.Migration.Status, step.Status); err != nil {
		return err
	}
	for _, event := range step.Events {
		r.Recorder.Event(view.Migration, event.Type, event.Reason, event.Message)
	}
	return frame.ErrStale
}
