package vmicontroller

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// stateOwner returns the owner of the persistent state: the VM, or a VMI without one.
func stateOwner(vmi *v1.VirtualMachineInstance) metav1.OwnerReference {
	if owner := metav1.GetControllerOf(vmi); owner != nil {
		owner.Controller, owner.BlockOwnerDeletion = nil, nil
		return *owner
	}
	kind := v1.VirtualMachineInstanceGroupVersionKind
	return metav1.OwnerReference{APIVersion: kind.GroupVersion().
		String(), Kind: kind.Kind, Name: vmi.Name, UID: vmi.UID}
}

// StateClaimName returns the name of the claim that is made for a VMI's persistent state. It depends on the owner
// alone, so that a second one cannot be made.
func StateClaimName(vmi *v1.VirtualMachineInstance) string {
	return stateClaimName(vmi, stateOwner(vmi).UID)
}

// MigrationStateClaimName returns the name of the claim that is made for the state of a VMI that moves.
func MigrationStateClaimName(vmi *v1.VirtualMachineInstance, migration types.UID) string {
	return stateClaimName(vmi, migration)
}

func stateClaimName(vmi *v1.VirtualMachineInstance, of types.UID) string {
	const most = 253 - len(vmstate.Prefix) - len("--xxxxx")
	name := strings.TrimRight(vmi.Name[:min(len(vmi.Name), most)], "-.")
	return vmstate.Prefix + "-" + name + "-" + names.Hash(string(of), 5)
}

// StateClaim returns the claim to be made for a VMI's persistent state. As in KubeVirt, a class that was configured for
// the purpose is taken to be usable on two nodes at once, which migration needs; the cluster's default class is not.
func StateClaim(vmi *v1.VirtualMachineInstance, configuration config.Config) *corev1.PersistentVolumeClaim {
	access, filesystem := corev1.ReadWriteOnce, corev1.PersistentVolumeFilesystem
	var class *string
	if configuration.VMStateStorageClass != "" {
		access, class = corev1.ReadWriteMany, &configuration.VMStateStorageClass
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: StateClaimName(vmi), Namespace: vmi.Namespace,
			Labels:          map[string]string{vmstate.Prefix: names.LabelValue(vmi.Name)},
			OwnerReferences: []metav1.OwnerReference{stateOwner(vmi)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{access},
			VolumeMode:       &filesystem,
			StorageClassName: class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(vmstate.Size)},
			},
		},
	}
}

// MigrationStateClaim returns the claim to be made for the state of a VMI that moves, where its present claim can be
// used on one node only. It gets the label of the VMI's state when the state is there; until then it has the
// migration's, as KubeVirt's.
func MigrationStateClaim(
	migration *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance, configuration config.Config,
) *corev1.PersistentVolumeClaim {
	claim := StateClaim(vmi, configuration)
	claim.Name = MigrationStateClaimName(vmi, migration.UID)
	claim.Labels = map[string]string{v1.MigrationNameLabel: names.LabelValue(migration.Name)}
	return claim
}

// IsMigrationState reports whether MigrationStateClaim made a claim, and it is nothing else yet.
func IsMigrationState(
	claim *corev1.PersistentVolumeClaim, migration *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance,
) bool {
	return claim.Name == MigrationStateClaimName(vmi, migration.UID) && claim.DeletionTimestamp == nil &&
		claim.Labels[v1.MigrationNameLabel] == names.LabelValue(migration.Name) && claim.Labels[vmstate.Prefix] == "" &&
		ownsState(vmi, claim) && !isBlock(claim)
}

// ownsState reports whether a claim goes with the VMI, or with its VM.
func ownsState(vmi *v1.VirtualMachineInstance, claim *corev1.PersistentVolumeClaim) bool {
	return vmstate.Owned(claim, stateOwner(vmi).UID)
}

// stateClaim chooses among claims the one that has a VMI's persistent state, nil when none does.
func stateClaim(vmi *v1.VirtualMachineInstance, claims []*corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return vmstate.Choose(vmi.Name, stateOwner(vmi).UID, claims)
}

// stateClaimIn returns the claim of a VMI's persistent state among those of Claims, nil when there is none.
func stateClaimIn(
	vmi *v1.VirtualMachineInstance, claims map[string]*corev1.PersistentVolumeClaim,
) *corev1.PersistentVolumeClaim {
	var list []*corev1.PersistentVolumeClaim
	for _, claim := range claims {
		list = append(list, claim)
	}
	return stateClaim(vmi, list)
}

// lookAtState adds the claim of the VMI's persistent state to its others.
func lookAtState(
	ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance,
	claims map[string]*corev1.PersistentVolumeClaim,
) error {
	if !vmstate.Needed(&vmi.Spec) {
		return nil
	}
	var found corev1.PersistentVolumeClaimList
	err := from.List(ctx, &found, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{vmstate.Prefix: names.LabelValue(vmi.Name)})
	if err != nil {
		return fmt.Errorf("list claims of persistent state: %w", err)
	}
	list := make([]*corev1.PersistentVolumeClaim, len(found.Items))
	for i := range found.Items {
		list[i] = &found.Items[i]
	}
	if claim := stateClaim(vmi, list); claim != nil {
		claims[claim.Name] = claim
	}
	return nil
}

// createState makes the claim of the VMI's persistent state. Whose claim has the name, when it is taken, is a part of
// the answer.
func (r *Reconciler) createState(ctx context.Context, view View, step *Step) error {
	claim := step.State
	err := r.writes.Create(ctx, claim)
	var there *corev1.PersistentVolumeClaim
	switch {
	case err == nil:
		r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created PersistentVolumeClaim %s for the persistent state", claim.Name)
		return nil
	case apierrors.IsAlreadyExists(err):
		var readErr error
		there, readErr = frame.Found(ctx, r.Client, claim.Namespace, claim.Name, &corev1.PersistentVolumeClaim{})
		if readErr != nil {
			return readErr
		}
	}
	return step.stateRefused(view, there, err)
}

// lookAtMovedState adds the claims from and to which the VMI's state has moved to its others.
func lookAtMovedState(
	ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance,
	claims map[string]*corev1.PersistentVolumeClaim,
) error {
	source, target := vmstate.Moved(&vmi.Status)
	for _, name := range []string{source, target} {
		if name == "" || claims[name] != nil {
			continue
		}
		var claim corev1.PersistentVolumeClaim
		err := from.Get(ctx, types.NamespacedName{Namespace: vmi.Namespace, Name: name}, &claim)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get claim %s: %w", name, err)
		}
		if err == nil {
			claims[name] = &claim
		}
	}
	return nil
}

// settleState makes the claim to which the state has moved the VMI's, and then detaches the old one from the VMI. It
// reports whether there was something to do. The status says that the state is there; as long as there is no label, the
// old claim is there, too.
func (s *Step) settleState(view View) bool {
	source, target := vmstate.Moved(&view.VMI.Status)
	now := vmstate.Claim(view.VMI)
	if target == "" || now == nil || now.ClaimName != target {
		return false
	}
	claim, old := view.Claims[target], view.Claims[source]
	switch {
	case claim == nil || claim.DeletionTimestamp != nil:
		return false // somebody has deleted it: the old one is all that is left
	case claim.Labels[vmstate.Prefix] != names.LabelValue(view.VMI.Name):
		s.AdoptState = claim
	case old != nil && old.DeletionTimestamp == nil && old.Labels[vmstate.Prefix] == names.LabelValue(view.VMI.Name):
		if ownsState(view.VMI, old) {
			s.RetireState = old
		} else {
			s.ReleaseState = old
		}
	default:
		return false
	}
	return true
}

// applyState labels and removes claims of the VMI's state.
func (r *Reconciler) applyState(ctx context.Context, view View, step *Step) error {
	if claim := step.AdoptState; claim != nil {
		err := r.writes.Change(ctx, claim, func() {
			metav1.SetMetaDataLabel(&claim.ObjectMeta, vmstate.Prefix, names.LabelValue(view.VMI.Name))
		})
		if err != nil {
			return fmt.Errorf("label claim %s as that of the persistent state: %w", claim.Name, err)
		}
	}
	if old := step.RetireState; old != nil {
		deleted, err := r.writes.Delete(ctx, old)
		if err != nil {
			return fmt.Errorf("delete claim %s, which the persistent state has left: %w", old.Name, err)
		}
		if deleted {
			r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, ReasonSuccessfulDelete,
				"Deleted PersistentVolumeClaim %s: the persistent state has moved with the guest", old.Name)
		}
	}
	if old := step.ReleaseState; old != nil {
		err := r.writes.Change(ctx, old, func() { delete(old.Labels, vmstate.Prefix) })
		if err != nil {
			return fmt.Errorf("take the label from claim %s, which the persistent state has left: %w", old.Name, err)
		}
	}
	return nil
}

// mountState gives the pod the claim of the persistent state: the one that is named, or that the VMI has.
func (p *podVolumes) mountState(
	vmi *v1.VirtualMachineInstance, claims map[string]*corev1.PersistentVolumeClaim, name string,
) {
	if !vmstate.Needed(&vmi.Spec) {
		return
	}
	if name == "" {
		name = StateClaimName(vmi)
		if claim := stateClaimIn(vmi, claims); claim != nil {
			name = claim.Name
		}
	}
	p.mount("vm-state", names.VMStateDir, false, corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	})
}
