package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

func (a *admission) validateClone(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	clone, old, err := objects[clonev1beta1.VirtualMachineClone](request)
	if err != nil {
		return nil, err
	}
	if old == nil && a.defaults().Allowed.NoSnapshots {
		return nil, errClonesOff
	}
	spec := &clone.Spec
	errs := slices.Concat(
		validateFilters(spec.AnnotationFilters, specField.Child("annotations")),
		validateFilters(spec.LabelFilters, specField.Child("labels")),
		validateFilters(spec.Template.AnnotationFilters, specField.Child("template", "annotations")),
		validateFilters(spec.Template.LabelFilters, specField.Child("template", "labels")),
		validateEnds(spec, clones.Crosses(clone)),
	)
	for name, mac := range spec.NewMacAddresses {
		if parsed, err := net.ParseMAC(mac); mac != "" && (err != nil || len(parsed) != 6) {
			errs = append(errs, field.Invalid(specField.Child("newMacAddresses").Child(name), mac,
				fmt.Sprintf("interface %s has malformed MAC address (%s).", name, mac)))
		}
	}
	for i, patch := range spec.Patches {
		if !json.Valid([]byte(patch)) {
			errs = append(errs, field.Invalid(specField.Child("patches").Index(i), patch,
				fmt.Sprintf("patch is not valid JSON (%s)", patch)))
		}
	}
	if p := spec.VolumeNamePolicy; p != nil && *p != clonev1beta1.VolumeNamePolicyRandomizeNames &&
		*p != clonev1beta1.VolumeNamePolicyPrefixTargetName {
		errs = append(errs, &field.Error{
			Type: field.ErrorTypeNotSupported, Field: "spec.volumeNamePolicy", BadValue: *p,
			Detail: fmt.Sprintf("VolumeNamePolicy %q is not supported", *p),
		})
	}
	if old == nil || !slices.Equal(spec.Patches, old.Spec.Patches) {
		errs = append(errs, reserved.ValidatePatches(spec.Patches, specField.Child("patches"))...)
	}
	if old == nil {
		errs = append(errs, validateForeign(clone)...)
	}
	if trouble := clones.KeepTrouble(clone); trouble != "" {
		errs = append(errs, field.Invalid(crossingField(clones.KeepAnnotation),
			clone.Annotations[clones.KeepAnnotation], trouble))
	}
	if old != nil {
		errs = append(errs, validateCrossingChange(clone, old, surface.ActorOf(request.UserInfo.Username))...)
	}
	if old != nil || len(errs) > 0 {
		return verdict(request.Kind.Kind, clone.Name, errs), nil
	}
	refusal, warning, err := a.admitCrossing(ctx, request, clone)
	if refusal != nil || err != nil {
		return refusal, err
	}
	if spec.Target != nil {
		if errs, err = a.validateFree(ctx, request.Namespace, spec.Target); err != nil {
			return nil, err
		}
	}
	stateful, leftOut, err := a.validateSource(ctx, request.Namespace, clone)
	if err != nil {
		return nil, err
	}
	errs = append(errs, stateful...)
	response := verdict(request.Kind.Kind, clone.Name, errs)
	if warning != "" {
		response.Warnings = append(response.Warnings, warning)
	}
	response.Warnings = append(response.Warnings, leftOut...)
	return response, nil
}

// validateFree refuses the name of a new VM or claim that another has. Names are given for good, so this holds for a
// clone that is made, and not for one that is changed: by then the VM or claim may be its own.
func (a *admission) validateFree(
	ctx context.Context, namespace string, target *corev1.TypedLocalObjectReference,
) (field.ErrorList, error) {
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	what, vm, claim := "VM", &v1.VirtualMachine{}, &corev1.PersistentVolumeClaim{}
	var err error
	if target.Kind == clones.KindClaim {
		what, err = "claim", a.read(ctx, namespace, target.Name, claim)
	} else {
		err = a.read(ctx, namespace, target.Name, vm)
	}
	if err != nil || vm.Name == "" && claim.Name == "" {
		return nil, err
	}
	return field.ErrorList{{
		Type: field.ErrorTypeInvalid, Field: targetField.Child("name").String(), BadValue: target.Name,
		Detail: fmt.Sprintf("%s %s/%s exists; give the clone another name", what, namespace, target.Name),
	}}, nil
}

// validateSource refuses a copy of a VM whose persistent state it could not have, before anything is made for it, and
// warns of the volumes that the copy will not have or waits for. One of a snapshot is refused by its restore.
func (a *admission) validateSource(
	ctx context.Context, namespace string, clone *clonev1beta1.VirtualMachineClone,
) (errs field.ErrorList, warnings []string, err error) {
	if clone.Spec.Source.Kind != kindMachine {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	vm, target := &v1.VirtualMachine{}, ""
	if clones.Crosses(clone) {
		namespace = clones.SourceNamespace(clone)
	}
	if err := a.read(ctx, namespace, clone.Spec.Source.Name, vm); err != nil {
		return nil, nil, err
	}
	warnings = snapshots.Warnings(vm)
	if clone.Spec.Target != nil {
		target = clone.Spec.Target.Name
	}
	if vm.Spec.Preference != nil && vm.Spec.Template != nil {
		if err := a.expand(ctx, vm); err != nil { // the preference may ask for the state
			return nil, nil, err
		}
	}
	if trouble := clones.StateTrouble(vm.Name, clones.KeepsState(vm), target); trouble != "" {
		errs = append(errs, field.Invalid(specField.Child("source"), clone.Spec.Source.Name, trouble))
	}
	return errs, warnings, nil
}

// validateFilters lets a filter begin with "!" and end with "*".
func validateFilters(filters []string, at *field.Path) (errs field.ErrorList) {
	const text = "%s filter %s is invalid: cannot contain a %s character (%s); FilterRules: %s"
	for _, filter := range filters {
		switch filter {
		case "":
			errs = append(errs, field.Invalid(at, filter, "an empty filter is not a valid filter"))
			continue
		case "!":
			errs = append(errs, field.Invalid(at, filter, "a negation character is not a valid filter"))
		}
		if strings.Contains(filter[1:], "!") {
			errs = append(errs, field.Invalid(at, filter, fmt.Sprintf(text, at, filter, "negation", "!",
				"NegationChar can be only used at the beginning of the filter")))
		}
		if strings.Contains(filter[:len(filter)-1], "*") {
			errs = append(errs, field.Invalid(at, filter, fmt.Sprintf(text, at, filter, "wildcard", "*",
				"WildcardChar can be only at the end of the filter")))
		}
	}
	return errs
}

// validateEnds checks the source and the target of a clone, which may have one name in two namespaces.
func validateEnds(spec *clonev1beta1.VirtualMachineCloneSpec, crosses bool) (errs field.ErrorList) {
	source, target := spec.Source, spec.Target
	refuse := func(at, text string) {
		errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: "spec." + at, Detail: text})
	}
	if source != nil && source.Kind == clones.KindClaim {
		return validateImageEnds(spec, crosses)
	}
	if target != nil && target.Kind != kindMachine {
		refuse("Target.Kind", "Target kind is not supported")
	}
	if target != nil && target.Name != "" { // without one the clone makes a name
		errs = append(errs, validateName(target.Name, targetField.Child("name"))...)
	}
	if source == nil {
		refuse("Source", "Source cannot be nil")
		return errs
	}
	if source.Kind != kindMachine && source.Kind != clones.KindSnapshot {
		refuse("Source.Kind", "Source kind is not supported")
	}
	if source.APIGroup == nil || *source.APIGroup == "" {
		refuse("Source.APIGroup", "Source's APIGroup cannot be empty")
	}
	if source.Kind == "" {
		refuse("Source", "Source's Kind cannot be empty")
	}
	if source.Name == "" {
		refuse("Source.Name", "Source's name cannot be empty")
	}
	if target != nil && !crosses && source.Kind == kindMachine && target.Kind == kindMachine &&
		source.Name == target.Name {
		refuse("target.name", "Target name cannot be equal to source name when both are VirtualMachines")
	}
	return errs
}
