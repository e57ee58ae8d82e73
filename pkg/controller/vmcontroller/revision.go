package vmcontroller

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
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

// earlierStarts returns the VM's revisions of other starts.
func earlierStarts(view *View, of *appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	return slices.DeleteFunc(slices.Clone(view.Starts), func(old *appsv1.ControllerRevision) bool {
		return old.Name == of.Name || !metav1.IsControlledBy(old, view.VM)
	})
}

// lookAtStarts finds the revisions of the VM's starts where it is about to start. They are read past the cache: they
// matter then only.
func (r *Reconciler) lookAtStarts(ctx context.Context, view *View) error {
	if view.VMI != nil || Next(*view).Create == nil {
		return nil
	}
	var all appsv1.ControllerRevisionList
	err := r.Live.List(ctx, &all, client.InNamespace(view.VM.Namespace),
		client.MatchingLabels{startRevisionLabel: string(view.VM.UID)})
	if err != nil {
		return fmt.Errorf("list the specs of earlier starts: %w", err)
	}
	for i := range all.Items {
		view.Starts = append(view.Starts, &all.Items[i])
	}
	return nil
}
