package vmcontroller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/vm/canonical"
)

// startRevisionLabel is on the ControllerRevision that keeps the spec that a VM was started with, and has the VM's UID.
const startRevisionLabel = "virtkit.io/start-revision-of"

// startRevision keeps the spec of a VM that starts, as KubeVirt's does: with the revisions of its instance type and
// preference named. status.virtualMachineRevisionName of the VMI names it.
func startRevision(view *View) (*appsv1.ControllerRevision, error) {
	vm := view.VM.DeepCopy()
	instancetype, preference := vm.Status.InstancetypeRef, vm.Status.PreferenceRef
	if view.Referred {
		instancetype, preference = view.InstancetypeRef, view.PreferenceRef
	}
	if vm.Spec.Instancetype != nil && instancetype != nil && instancetype.ControllerRevisionRef != nil {
		vm.Spec.Instancetype.RevisionName = instancetype.ControllerRevisionRef.Name
	}
	if vm.Spec.Preference != nil && preference != nil && preference.ControllerRevisionRef != nil {
		vm.Spec.Preference.RevisionName = preference.ControllerRevisionRef.Name
	}
	data, err := canonical.Encode(map[string]any{"spec": vm.Spec})
	if err != nil {
		return nil, fmt.Errorf("encode the VM's spec: %w", err)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: vmicontroller.StartRevision(vm.UID, vm.Generation),
			Labels:          map[string]string{startRevisionLabel: string(vm.UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Data: data, Revision: vm.Generation,
	}, nil
}

// keepStart makes the revision of a start, and removes those of earlier ones. They are read past the cache: they matter
// when a VM starts only.
func (r *Reconciler) keepStart(ctx context.Context, view *View) error {
	revision, err := startRevision(view)
	if err != nil {
		return err
	}
	if err := r.writes.Create(ctx, revision); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep the spec that the VM is started with, %s: %w", revision.Name, err)
	}
	var all appsv1.ControllerRevisionList
	err = r.Live.List(ctx, &all, client.InNamespace(view.VM.Namespace),
		client.MatchingLabels{startRevisionLabel: string(view.VM.UID)})
	if err != nil {
		return fmt.Errorf("list the specs of earlier starts: %w", err)
	}
	for i := range all.Items {
		old := &all.Items[i]
		if old.Name == revision.Name || !metav1.IsControlledBy(old, view.VM) {
			continue
		}
		if _, err := r.writes.Delete(ctx, old); err != nil {
			return fmt.Errorf("remove the spec of an earlier start, %s: %w", old.Name, err)
		}
	}
	return nil
}
