package virtapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

const kindMachine = "VirtualMachine"

// What KubeVirt answers while its feature gate Snapshot is closed; its clients match the words.
var (
	errSnapshotsOff = errors.New("snapshot feature gate not enabled")
	errClonesOff    = errors.New("snapshot feature gate is not enabled")
)

var (
	specField   = field.NewPath("spec")
	targetField = specField.Child("target")
)

// immutable are KubeVirt's words for a snapshot or restore that is changed.
func immutable() field.ErrorList {
	return field.ErrorList{field.Invalid(specField, nil, "spec in immutable after creation")}
}

func (a *admission) validateSnapshot(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	snapshot, old, err := objects[v1beta1.VirtualMachineSnapshot](request)
	if err != nil {
		return nil, err
	}
	if old == nil && a.defaults().Allowed.NoSnapshots {
		return nil, errSnapshotsOff
	}
	var errs field.ErrorList
	switch {
	case old == nil:
		errs = ofMachine(&snapshot.Spec.Source, specField.Child("source"))
	case !equality.Semantic.DeepEqual(snapshot.Spec, old.Spec):
		errs = immutable()
	}
	return verdict(request.Kind.Kind, snapshot.Name, errs), nil
}

// ofMachine checks a reference to a VirtualMachine.
func ofMachine(to *corev1.TypedLocalObjectReference, at *field.Path) field.ErrorList {
	switch {
	case to.APIGroup == nil:
		return field.ErrorList{{
			Type: field.ErrorTypeNotFound, Field: at.Child("apiGroup").String(), Detail: "missing apiGroup",
		}}
	case *to.APIGroup != v1.GroupVersion.Group:
		return field.ErrorList{field.Invalid(at.Child("apiGroup"), *to.APIGroup, "invalid apiGroup")}
	case to.Kind != kindMachine:
		return field.ErrorList{field.Invalid(at.Child("kind"), to.Kind, "invalid kind")}
	}
	return nil
}

func (a *admission) validateRestore(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	restore, old, err := objects[v1beta1.VirtualMachineRestore](request)
	if err != nil {
		return nil, err
	}
	if old == nil && a.defaults().Allowed.NoSnapshots {
		return nil, errSnapshotsOff
	}
	if old != nil {
		var errs field.ErrorList
		if !equality.Semantic.DeepEqual(restore.Spec, old.Spec) {
			errs = immutable()
		}
		return verdict(request.Kind.Kind, restore.Name, errs), nil
	}
	restore.Namespace = request.Namespace
	errs := ofMachine(&restore.Spec.Target, targetField)
	if len(errs) == 0 {
		errs = append(validatePatches(restore.Spec.Patches), validatePolicies(&restore.Spec)...)
		ctx, cancel := context.WithTimeout(ctx, lookup)
		defer cancel()
		other, err := a.validateRestored(ctx, restore)
		if err != nil {
			return nil, err
		}
		errs = append(errs, other...)
	}
	return verdict(request.Kind.Kind, restore.Name, errs), nil
}

// validatePatches lets pass what changes labels, annotations and the spec of a VM.
func validatePatches(patches []string) (errs field.ErrorList) {
	at := specField.Child("patches")
	for _, patch := range patches {
		var operation struct {
			Op, Path, From string
		}
		if err := json.Unmarshal([]byte(patch), &operation); err != nil || operation.Op == "" {
			errs = append(errs, field.Invalid(at, patch, "patch format is not valid - a JSON patch operation "+
				`expected, such as {"op": "replace", "path": "/spec/...", "value": ...}: `+patch))
			continue
		}
		allowed := func(path string) bool {
			return strings.HasPrefix(path, "/metadata/labels/") || strings.HasPrefix(path, "/metadata/annotations/") ||
				strings.HasPrefix(path, "/spec/")
		}
		if !allowed(operation.Path) || operation.From != "" && !allowed(operation.From) {
			errs = append(errs,
				field.Invalid(at, patch, "patching is valid only for elements under /spec/ only: "+patch))
		}
	}
	return errs
}

// validatePolicies checks what a restore says of readiness and volumes.
func validatePolicies(spec *v1beta1.VirtualMachineRestoreSpec) (errs field.ErrorList) {
	at := specField.Child("volumeRestoreOverrides")
	for i, o := range spec.VolumeRestoreOverrides {
		if o.VolumeName == "" {
			errs = append(errs, field.Required(at.Index(i).Child("volumeName"), "must provide a volume name"))
		}
		if o.RestoreName == "" && o.Annotations == nil && o.Labels == nil {
			errs = append(errs, field.Required(at.Index(i), "must provide at least one overriden field")) //nolint:misspell // KubeVirt's text
		}
	}
	if p := spec.VolumeRestorePolicy; p != nil && !slices.Contains([]v1beta1.VolumeRestorePolicy{
		v1beta1.VolumeRestorePolicyInPlace, v1beta1.VolumeRestorePolicyRandomizeNames,
		v1beta1.VolumeRestorePolicyPrefixTargetName,
	}, *p) {
		errs = append(errs, field.Invalid(specField.Child("volumeRestorePolicy"), *p,
			fmt.Sprintf("volume restore policy %q doesn't exist", *p)))
	}
	if p := spec.VolumeOwnershipPolicy; p != nil && !slices.Contains([]v1beta1.VolumeOwnershipPolicy{
		v1beta1.VolumeOwnershipPolicyVm, v1beta1.VolumeOwnershipPolicyNone,
	}, *p) {
		errs = append(errs, field.Invalid(specField.Child("volumeOwnershipPolicy"), *p,
			fmt.Sprintf("volume ownership policy %q doesn't exist", *p)))
	}
	if p := spec.TargetReadinessPolicy; p != nil && !slices.Contains([]v1beta1.TargetReadinessPolicy{
		v1beta1.VirtualMachineRestoreStopTarget, v1beta1.VirtualMachineRestoreWaitGracePeriodAndFail,
		v1beta1.VirtualMachineRestoreFailImmediate, v1beta1.VirtualMachineRestoreWaitEventually,
	}, *p) {
		errs = append(errs, field.Invalid(specField.Child("targetReadinessPolicy"), *p,
			fmt.Sprintf("target readiness policy %q doesn't exist", *p)))
	}
	return errs
}

// validateRestored checks a restore against what there is: other restores, and the snapshot's VM.
func (a *admission) validateRestored(
	ctx context.Context, restore *v1beta1.VirtualMachineRestore,
) (errs field.ErrorList, err error) {
	var others v1beta1.VirtualMachineRestoreList
	if err := a.read(ctx, restore.Namespace, "", &others); err != nil {
		return nil, err
	}
	for i := range others.Items {
		other := &others.Items[i]
		if other.Name != restore.Name && equality.Semantic.DeepEqual(other.Spec.Target, restore.Spec.Target) &&
			!restored(other) {
			errs = append(errs, field.Invalid(targetField, nil,
				fmt.Sprintf("VirtualMachineRestore %q in progress", other.Name)))
		}
	}
	var snapshot v1beta1.VirtualMachineSnapshot
	if err := a.read(ctx, restore.Namespace, restore.Spec.VirtualMachineSnapshotName, &snapshot); err != nil ||
		snapshot.Status == nil || snapshot.Status.VirtualMachineSnapshotContentName == nil {
		return errs, err // it may come yet
	}
	var content v1beta1.VirtualMachineSnapshotContent
	err = a.read(ctx, restore.Namespace, *snapshot.Status.VirtualMachineSnapshotContentName, &content)
	if err != nil {
		return nil, err
	}
	source := content.Spec.Source.VirtualMachine
	// The state goes by the name of the VM, so a VM that is made again under its name has it.
	if source != nil && source.Spec.Template != nil && vmstate.Needed(&source.Spec.Template.Spec) &&
		source.Name != restore.Spec.Target.Name {
		errs = append(errs, field.Invalid(specField, nil, "Restore to a different VM is not supported when "+
			"snapshotted VM has backend storage (persistent TPM or EFI)"))
	}
	return errs, nil
}

// read reads an object, which stays empty when it is not there; a restore without a namespace has nothing to read.
func (a *admission) read(ctx context.Context, namespace, name string, into runtime.Object) error {
	if namespace == "" {
		return nil
	}
	if _, list := into.(*v1beta1.VirtualMachineRestoreList); name == "" && !list {
		return nil
	}
	if err := a.referents.Read(ctx, namespace, name, into); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// restored reports a restore that has ended.
func restored(r *v1beta1.VirtualMachineRestore) bool {
	if r.Status == nil {
		return false
	}
	return r.Status.Complete != nil && *r.Status.Complete ||
		slices.ContainsFunc(r.Status.Conditions, func(c v1beta1.Condition) bool {
			return c.Type == v1beta1.ConditionFailure
		})
}

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
		validateEnds(spec),
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
	if old == nil && len(errs) == 0 && spec.Target != nil {
		taken, err := a.validateFree(ctx, request.Namespace, spec.Target.Name)
		if err != nil {
			return nil, err
		}
		errs = taken
	}
	return verdict(request.Kind.Kind, clone.Name, errs), nil
}

// validateFree refuses the name of a new VM that another has. Names are given for good, so this holds for a clone that
// is made, and not for one that is changed: by then the VM may be its own.
func (a *admission) validateFree(ctx context.Context, namespace, name string) (field.ErrorList, error) {
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	vm := &v1.VirtualMachine{}
	if err := a.read(ctx, namespace, name, vm); err != nil || vm.Name == "" {
		return nil, err
	}
	return field.ErrorList{{
		Type: field.ErrorTypeInvalid, Field: targetField.Child("name").String(), BadValue: name,
		Detail: fmt.Sprintf("VM %s/%s exists; give the clone another name", namespace, name),
	}}, nil
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

// validateEnds checks the source and the target of a clone.
func validateEnds(spec *clonev1beta1.VirtualMachineCloneSpec) (errs field.ErrorList) {
	source, target := spec.Source, spec.Target
	refuse := func(at, text string) {
		errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: "spec." + at, Detail: text})
	}
	if target != nil && target.Kind != kindMachine {
		refuse("Target.Kind", "Target kind is not supported")
	}
	if source == nil {
		refuse("Source", "Source cannot be nil")
		return errs
	}
	if source.Kind != kindMachine && source.Kind != "VirtualMachineSnapshot" {
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
	if target != nil && source.Kind == kindMachine && target.Kind == kindMachine && source.Name == target.Name {
		refuse("target.name", "Target name cannot be equal to source name when both are VirtualMachines")
	}
	return errs
}

// validateHeld refuses changes of a VM that is being snapshotted or restored. virt-controller, which does both, may.
func validateHeld(vm, old *v1.VirtualMachine, by surface.Actor) field.ErrorList {
	if old == nil || by.Component {
		return nil
	}
	refuse := func(text string, in *string) field.ErrorList {
		return field.ErrorList{{
			Type: field.ErrorTypeNotSupported, Field: "spec", Detail: fmt.Sprintf(text, *in),
		}}
	}
	if in := vm.Status.RestoreInProgress; in != nil {
		if strategy, err := vm.RunStrategy(); err != nil || strategy != v1.RunStrategyHalted {
			return refuse("Cannot start VM until restore %q completes", in)
		}
	}
	in := vm.Status.SnapshotInProgress
	if in == nil || vm.Spec.Template == nil || old.Spec.Template == nil {
		return nil
	}
	if !equality.Semantic.DeepEqual(vm.Spec.Template.Spec.Volumes, old.Spec.Template.Spec.Volumes) {
		return refuse("Cannot update vm disks or volumes until snapshot %q completes", in)
	}
	if !reflect.DeepEqual(vm.Spec.Running, old.Spec.Running) ||
		!reflect.DeepEqual(vm.Spec.RunStrategy, old.Spec.RunStrategy) {
		return refuse("Cannot update vm running state until snapshot %q completes", in)
	}
	return nil
}
