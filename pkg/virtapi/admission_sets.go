package virtapi

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/pools"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

func (a *admission) validateReplicaSet(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	set, old, err := objects[v1.VirtualMachineInstanceReplicaSet](request)
	if err != nil {
		return nil, err
	}
	if surface.ReplicaSetSettled(set, old) {
		return allowed(), nil
	}
	d, template := a.defaults(), set.Spec.Template
	errs := surface.ValidateVirtualMachineInstanceReplicaSet(set, d)
	if template == nil {
		return verdict(request.Kind.Kind, set.Name, errs), nil
	}
	var before map[string]string
	if old != nil && old.Spec.Template != nil {
		before = old.Spec.Template.ObjectMeta.Annotations
	}
	errs = append(errs, reserved.Validate(reserved.Template, template.ObjectMeta.Annotations, before,
		templateAnnotationsField)...)
	errs = append(errs, d.Allowed.Validate(&template.Spec, field.NewPath("spec", "template", "spec"))...)
	response := verdict(request.Kind.Kind, set.Name, errs)
	response.Warnings = surface.Warnings("spec.template.", template.ObjectMeta.Annotations, &template.Spec)
	response.Warnings = append(response.Warnings, surface.ReplicaSetWarnings(set)...)
	return response, nil
}

// validatePool checks a pool and the first VM that it would make, as that VM's own admission will.
func (a *admission) validatePool(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	set, old, err := objects[v1beta1.VirtualMachinePool](request)
	if err != nil {
		return nil, err
	}
	if surface.PoolSettled(set, old) {
		return allowed(), nil
	}
	errs := surface.ValidateVirtualMachinePool(set, old)
	if set.Spec.VirtualMachineTemplate == nil {
		return verdict(request.Kind.Kind, set.Name, errs), nil
	}
	errs = append(errs, validatePoolReserved(set, old)...)
	vm := pools.Machine(set, pools.TemplateOf(set), 0, "")
	made, warnings, err := a.validateMade(ctx, vm)
	if err != nil {
		return nil, err
	}
	response := verdict(request.Kind.Kind, set.Name, append(errs, surface.InPool(made)...))
	response.Warnings = append(response.Warnings, surface.PoolWarnings(set)...)
	for _, warning := range append(warnings, surface.MachineWarnings(vm)...) {
		response.Warnings = append(response.Warnings, "spec.virtualMachineTemplate."+warning)
	}
	return response, nil
}

// validatePoolReserved refuses annotations of the components in a pool's template, and in its VMs' templates.
func validatePoolReserved(set, old *v1beta1.VirtualMachinePool) field.ErrorList {
	of := func(set *v1beta1.VirtualMachinePool) (vm, template map[string]string) {
		if set == nil || set.Spec.VirtualMachineTemplate == nil {
			return nil, nil
		}
		made := set.Spec.VirtualMachineTemplate
		return made.ObjectMeta.Annotations, templateAnnotations(&v1.VirtualMachine{Spec: made.Spec})
	}
	vm, template := of(set)
	vmBefore, templateBefore := of(old)
	at := specField.Child("virtualMachineTemplate")
	return append(
		reserved.Validate(reserved.Template, vm, vmBefore, at.Child("metadata", "annotations")),
		reserved.Validate(reserved.Template, template, templateBefore,
			at.Child("spec", "template", "metadata", "annotations"))...)
}

// validateMade admits a VM that does not exist yet: it defaults it, and then checks it.
func (a *admission) validateMade(
	ctx context.Context, vm *v1.VirtualMachine,
) (errs field.ErrorList, warnings []string, err error) {
	defaults, err := a.refer(ctx, vm, a.defaults())
	var missing *instancetype.NotFoundError
	if errors.As(err, &missing) {
		return missing.List(), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	surface.DefaultVirtualMachine(vm, nil, defaults)
	return a.validateReferring(ctx, vm)
}
