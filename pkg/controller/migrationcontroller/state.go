package migrationcontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// stateClaims returns the claims of the guest's persistent state before and after a migration: one and the same where
// both nodes can use it, and empty where there is none.
func stateClaims(
	migration *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance,
) (source, target string) {
	claim := vmstate.Claim(vmi)
	switch {
	case claim == nil:
		return "", ""
	case vmstate.Shared(claim):
		return claim.ClaimName, claim.ClaimName
	}
	return claim.ClaimName, vmicontroller.MigrationStateClaimName(vmi, migration.UID)
}

// lookAtState finds the claim that was made for the guest's state where it goes.
func (r *Reconciler) lookAtState(ctx context.Context, view *View) error {
	source, target := stateClaims(view.Migration, view.VMI)
	if ms := state(*view); ms != nil { // the guest's claim may be the target by now
		source, target = vmstate.Moved(&view.VMI.Status)
	}
	if target == source {
		return nil
	}
	var claim corev1.PersistentVolumeClaim
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: view.VMI.Namespace, Name: target}, &claim)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get claim %s: %w", target, err)
	case vmicontroller.IsMigrationState(&claim, view.Migration, view.VMI):
		view.StateClaim = &claim
	default:
		view.StateTaken = true
	}
	return nil
}

// createState makes the claim for the guest's state where it goes; nil is none.
func (r *Reconciler) createState(ctx context.Context, view View, claim *corev1.PersistentVolumeClaim) error {
	if claim == nil {
		return nil
	}
	switch err := r.writes.Create(ctx, claim); {
	case apierrors.IsAlreadyExists(err):
		return frame.ErrStale
	case err != nil:
		r.Recorder.Eventf(view.Migration, corev1.EventTypeWarning, ReasonFailedCreate,
			"Error creating the claim of the persistent state: %v", err)
		return fmt.Errorf("create the claim of the persistent state: %w", err)
	}
	r.Recorder.Eventf(view.Migration, corev1.EventTypeNormal, ReasonSuccessfulCreate,
		"Created PersistentVolumeClaim %s for the persistent state", claim.Name)
	return nil
}

// dropState deletes the claim that was made for the guest's state, once it is known that the state has not come to it:
// the migration failed before the guest could begin to move, or the guest runs at its source. As long as neither is
// known, the claim stays, and goes with the VM: also when the VMI was made anew since.
func (s *Step) dropState(view View) {
	claim := view.StateClaim
	if claim == nil || view.Pod != nil && atTarget(view) {
		return
	}
	if now := vmstate.Claim(view.VMI); now != nil && now.ClaimName == claim.Name {
		return
	}
	ms := state(view)
	var unused bool
	switch {
	case ms == nil:
		unused = since(&view.Migration.Status, v1.MigrationScheduled).IsZero()
	case ms.TargetNodeAddress == "": // the source has no target address yet
		unused = true
	default:
		unused = migrations.Failed(ms) && view.VMI.Status.NodeName == ms.SourceNode &&
			view.VMI.Status.Phase == v1.Running
	}
	if unused {
		s.DeleteState = claim
	}
}

// deleteState deletes what dropState chose.
func (r *Reconciler) deleteState(ctx context.Context, view View, claim *corev1.PersistentVolumeClaim) error {
	deleted, err := r.writes.Delete(ctx, claim)
	if err != nil {
		return fmt.Errorf("delete claim %s: %w", claim.Name, err)
	}
	if deleted {
		r.Recorder.Eventf(view.Migration, corev1.EventTypeNormal, ReasonSuccessfulDelete,
			"Deleted PersistentVolumeClaim %s, to which the persistent state has not moved", claim.Name)
	}
	return nil
}
