package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/instancetype"
	"github.com/virtkit/virtkit/pkg/surface"
)

// Reasons of a Failure and of events; KubeVirt's.
const (
	reasonFailedFind  = "FailedFindInstancetype"
	reasonNotApplied  = "FailedApplyInstancetype"
	reasonNotCaptured = "FailedCaptureInstancetype"
)

// retryMissing is when a VM that refers to what is not there is looked at again: nobody watches for it.
const retryMissing = 10 * time.Second

// liveReader reads past the cache: what VMs refer to is read when a VM is made and when it starts, and is not
// worth keeping.
type liveReader struct{ client.Reader }

// Read implements instancetype.Reader.
func (r liveReader) Read(ctx context.Context, namespace, name string, into runtime.Object) error {
	object, ok := into.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", into)
	}
	return r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
}

// refers reports whether the VM's template is not all there is.
func refers(vm *v1.VirtualMachine) bool {
	return vm.Spec.Instancetype != nil || vm.Spec.Preference != nil
}

// pinned reports whether the VM's status records a revision of everything that the VM refers to, as it refers to
// it now.
func pinned(vm *v1.VirtualMachine) bool {
	if m := vm.Spec.Instancetype; m != nil && !records(vm.Status.InstancetypeRef, instancetype.Instancetype, m.Name, m.Kind, m.RevisionName) {
		return false
	}
	if m := vm.Spec.Preference; m != nil && !records(vm.Status.PreferenceRef, instancetype.Preference, m.Name, m.Kind, m.RevisionName) {
		return false
	}
	return true
}

func records(ref *v1.InstancetypeStatusRef, role instancetype.Role, name, kind, revision string) bool {
	if ref == nil || ref.ControllerRevisionRef == nil || ref.Name != name {
		return false
	}
	of, err := instancetype.KindOf(role, kind)
	return err == nil && ref.Kind == of && (revision == "" || ref.ControllerRevisionRef.Name == revision)
}

// pin sees that a revision is kept of what the VM refers to, and puts the references into the view's VM, whose
// status is written with all else. What cannot be found is the view's Failure.
func (r *Reconciler) pin(ctx context.Context, view *View) error {
	vm := view.VM
	if vm.DeletionTimestamp != nil || !refers(vm) && vm.Status.InstancetypeRef == nil && vm.Status.PreferenceRef == nil || refers(vm) && pinned(vm) {
		return nil
	}
	resolved, err := r.resolve(ctx, view)
	if err != nil || view.Failure != "" {
		return err
	}
	view.InstancetypeRef, err = r.reference(ctx, vm, resolved.Instancetype)
	if err == nil {
		view.PreferenceRef, err = r.reference(ctx, vm, resolved.Preference)
	}
	if err != nil {
		view.Failure, view.FailureReason = err.Error(), reasonNotCaptured
		return err
	}
	view.Referred = true
	return nil
}

// resolve reads what the VM refers to; what cannot be used is the view's Failure.
func (r *Reconciler) resolve(ctx context.Context, view *View) (instancetype.Resolved, error) {
	resolved, err := instancetype.Resolve(ctx, liveReader{r.Live}, view.VM)
	var missing *instancetype.NotFoundError
	if errors.As(err, &missing) {
		view.Failure, view.FailureReason = missing.Error(), reasonFailedFind
		if !hasFailure(view.VM, view.Failure) {
			r.Recorder.Event(view.VM, corev1.EventTypeWarning, reasonFailedFind, view.Failure)
		}
		return instancetype.Resolved{}, nil
	}
	return resolved, err
}

// reference keeps a revision of an object that has none, and is what the status records; nil for nil.
func (r *Reconciler) reference(ctx context.Context, vm *v1.VirtualMachine, object *instancetype.Object) (*v1.InstancetypeStatusRef, error) {
	if object == nil {
		return nil, nil
	}
	name := object.Revision
	if name == "" {
		revision, err := instancetype.Capture(vm, object)
		if err != nil {
			return nil, err
		}
		if err := r.Client.Create(ctx, revision); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("keep a copy of %s: %w", object, err)
		}
		name = revision.Name
	}
	return instancetype.Reference(object, name), nil
}

// expand gives the template that the VM's VMI is to be made from: with what the VM refers to written into it. What
// stands in the way, a conflict for example which came about after the VM was admitted, is the view's Failure.
func (r *Reconciler) expand(ctx context.Context, view *View) (*v1.VirtualMachineInstanceTemplateSpec, error) {
	if !refers(view.VM) {
		return view.VM.Spec.Template, nil
	}
	asPinned := *view
	asPinned.VM = view.VM.DeepCopy()
	if view.Referred {
		asPinned.VM.Status.InstancetypeRef, asPinned.VM.Status.PreferenceRef = view.InstancetypeRef, view.PreferenceRef
	}
	resolved, err := r.resolve(ctx, &asPinned)
	view.Failure, view.FailureReason = asPinned.Failure, asPinned.FailureReason
	if err != nil || view.Failure != "" {
		return nil, err
	}
	template, errs := instancetype.Expand(view.VM, resolved)
	if len(errs) > 0 {
		view.Failure, view.FailureReason = surface.Message(errs), reasonNotApplied
		return nil, nil
	}
	if template.ObjectMeta.Annotations == nil {
		template.ObjectMeta.Annotations = map[string]string{}
	}
	maps.Copy(template.ObjectMeta.Annotations, resolved.Annotations())
	return template, nil
}
