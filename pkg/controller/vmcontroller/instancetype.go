package vmcontroller

import (
	"context"
	"errors"
	"maps"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// Reasons of a Failure and of events; KubeVirt's.
const (
	reasonNoInstancetype = "FailedFindInstancetype"
	reasonNoPreference   = "FailedFindPreference"
	reasonNotApplied     = "FailedApplyInstancetype"
)

// retryMissing is the delay before the next look at a VM that refers to a missing object, which nothing watches for.
const retryMissing = 10 * time.Second

// refers reports whether the VM's template is not all there is.
func refers(vm *v1.VirtualMachine) bool {
	return vm.Spec.Instancetype != nil || vm.Spec.Preference != nil
}

// pinned reports whether the VM's status records a revision of everything that the VM refers to, as it refers to
// it now.
func pinned(vm *v1.VirtualMachine) bool {
	if m := vm.Spec.Instancetype; m != nil &&
		!records(vm.Status.InstancetypeRef, instancetype.Instancetype, m.Name, m.Kind, m.RevisionName) {
		return false
	}
	if m := vm.Spec.Preference; m != nil &&
		!records(vm.Status.PreferenceRef, instancetype.Preference, m.Name, m.Kind, m.RevisionName) {
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

// pin sees that a revision is kept of what the VM refers to, and that the status records it. What cannot be found is
// the view's Failure.
func (s *Step) pin() error {
	view := &s.After
	vm := view.VM
	if !unpinned(vm) {
		return nil
	}
	view.failMissing()
	s.reportMissing()
	if view.Failure != "" {
		return nil
	}
	var err error
	if view.InstancetypeRef, err = s.reference(view.Resolved.Instancetype); err != nil {
		return err
	}
	if view.PreferenceRef, err = s.reference(view.Resolved.Preference); err != nil {
		return err
	}
	view.Referred = true
	return nil
}

// failMissing makes what of the VM's references is missing the view's Failure.
func (view *View) failMissing() {
	switch missing := view.Missing; {
	case missing == nil:
	case missing.Role == instancetype.Preference:
		view.Failure, view.FailureReason = missing.Error(), reasonNoPreference
	default:
		view.Failure, view.FailureReason = missing.Error(), reasonNoInstancetype
	}
}

// awaits reports whether the view's Failure concerns the VM's instance type or preference: no VMI is made before they
// are fixed.
func (view *View) awaits() bool {
	switch view.FailureReason {
	case reasonNoInstancetype, reasonNoPreference, reasonNotApplied:
		return true
	}
	return false
}

// unpinned reports whether the references in the VM's status are not those in its spec.
func unpinned(vm *v1.VirtualMachine) bool {
	if vm.DeletionTimestamp != nil {
		return false
	}
	if refers(vm) {
		return !pinned(vm)
	}
	return vm.Status.InstancetypeRef != nil || vm.Status.PreferenceRef != nil
}

// needed reports whether what a VM refers to is worth reading: to record it, to make a VMI from it, or to compare a
// guest that runs with it.
func needed(view View) bool {
	switch {
	case !refers(view.VM):
		return false
	case unpinned(view.VM), life.Staying(view.VMI) && !upToDate(view.VM, view.VMI):
		return true
	}
	decision, err := Decide(view)
	if err != nil || decision.Action != Create {
		return false
	}
	probe := Step{After: view, Decision: decision}
	probe.provide()
	return probe.After.Failure == "" && probe.After.Filled
}

// lookAtReferences reads what the VM refers to.
func (r *Reconciler) lookAtReferences(ctx context.Context, view *View) error {
	if !needed(*view) {
		return nil
	}
	resolved, err := instancetype.Resolve(ctx, frame.Reader{Reader: r.Live}, view.VM)
	if errors.As(err, &view.Missing) {
		return nil
	}
	view.Resolved = resolved
	return err
}

// reference stores a revision of an object that has none, and returns what the status records; nil for nil.
func (s *Step) reference(object *instancetype.Object) (*v1.InstancetypeStatusRef, error) {
	if object == nil {
		return nil, nil
	}
	name := object.Revision
	if name == "" {
		revision, err := instancetype.Capture(s.After.VM, object)
		if err != nil {
			return nil, err
		}
		s.Revisions = append(s.Revisions, revision)
		name = revision.Name
	}
	return instancetype.Reference(object, name), nil
}

// expand returns the template that the VM's VMI is to be made from: with what the VM refers to written into it. What
// stands in the way, a conflict for example which came about after the VM was admitted, is the view's Failure.
func (view *View) expand() *v1.VirtualMachineInstanceTemplateSpec {
	if !refers(view.VM) {
		return view.VM.Spec.Template
	}
	view.failMissing()
	if view.Failure != "" || view.Resolved.None() {
		return nil
	}
	template, errs := instancetype.Expand(view.VM, view.Resolved)
	if len(errs) > 0 {
		view.Failure, view.FailureReason = surface.Message(errs), reasonNotApplied
		return nil
	}
	if template.ObjectMeta.Annotations == nil {
		template.ObjectMeta.Annotations = map[string]string{}
	}
	maps.Copy(template.ObjectMeta.Annotations, view.Resolved.Annotations())
	return template
}
