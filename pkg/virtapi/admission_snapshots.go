package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

const kindMachine = "VirtualMachine"

// closedError refuses what a feature gate would allow: it is no fault of the object, which is accepted once the gate is
// open.
type closedError string

func (e closedError) Error() string { return string(e) }

// What KubeVirt answers while its feature gate Snapshot is closed; its clients match the words.
const (
	errSnapshotsOff closedError = "snapshot feature gate not enabled"
	errClonesOff    closedError = "snapshot feature gate is not enabled"
)

var (
	specField   = field.NewPath("spec")
	targetField = specField.Child("target")
)

// immutable returns KubeVirt's error for a snapshot or restore that is changed.
func immutable() field.ErrorList {
	return field.ErrorList{field.Invalid(specField, nil, "spec in immutable after creation")}
}

// defaultSnapshot gives a new snapshot the finalizer that virt-controller would give it as its first step. One that a
// clone has copied from another namespace is never worked on, and has none.
func (a *admission) defaultSnapshot(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	snapshot, old, ok := readable[v1beta1.VirtualMachineSnapshot](request)
	if !ok || old != nil {
		return allowed(), nil
	}
	if _, copied := snapshot.Annotations[clones.CopiedAnnotation]; copied {
		return allowed(), nil
	}
	before := snapshot.DeepCopy()
	controllerutil.AddFinalizer(snapshot, snapshots.SnapshotFinalizer)
	return patched(request.Object.Raw, before, snapshot)
}

func (a *admission) validateSnapshot(
	ctx context.Context, request *admissionv1.AdmissionRequest,
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
	response := verdict(request.Kind.Kind, snapshot.Name, errs)
	if old != nil || len(errs) > 0 {
		return response, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	vm := &v1.VirtualMachine{}
	if err := a.read(ctx, request.Namespace, snapshot.Spec.Source.Name, vm); err != nil {
		return nil, err
	}
	response.Warnings = snapshots.Warnings(vm)
	return response, nil
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
	return validateName(to.Name, at.Child("name"))
}

// validateName refuses what no VM can be called: a restore or clone would try for ever to make it.
func validateName(name string, at *field.Path) (errs field.ErrorList) {
	for _, problem := range content.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(at, name, problem))
	}
	return errs
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
		errs = append(errs, validateKeepChange(restore, old)...)
		return verdict(request.Kind.Kind, restore.Name, errs), nil
	}
	restore.Namespace = request.Namespace
	errs := ofMachine(&restore.Spec.Target, targetField)
	if len(errs) == 0 {
		patches := restore.Spec.Patches
		errs = slices.Concat(validatePatches(patches), reserved.ValidatePatches(patches, specField.Child("patches")),
			validatePolicies(&restore.Spec), validateKeep(restore))
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

// keepField returns the field in which a restore says what it keeps, or takes back.
func keepField(key string) *field.Path { return field.NewPath("metadata", "annotations").Key(key) }

// validateKeep checks what a restore says of what it replaces.
func validateKeep(r *v1beta1.VirtualMachineRestore) (errs field.ErrorList) {
	const keep, undo = snapshots.KeepAnnotation, snapshots.UndoAnnotation
	if value, ok := r.Annotations[keep]; ok && value != "true" && value != "false" {
		errs = append(errs, field.Invalid(keepField(keep), value, `must be "true" or "false"`))
	}
	if value, ok := r.Annotations[undo]; ok && (value == "" || len(content.IsDNS1123Subdomain(value)) > 0) {
		errs = append(errs, field.Invalid(keepField(undo), value, "must be the name of a VirtualMachineRestore"))
	}
	if p := r.Spec.VolumeRestorePolicy; snapshots.Keeps(r) && p != nil && *p == v1beta1.VolumeRestorePolicyInPlace {
		errs = append(errs, field.Invalid(specField.Child("volumeRestorePolicy"), *p,
			"the new claims have the names of the old ones, which cannot be kept; choose another policy"))
	}
	return errs
}

// validateKeepChange holds what a restore keeps to what it was made with: it is decided before anything is replaced.
func validateKeepChange(r, old *v1beta1.VirtualMachineRestore) (errs field.ErrorList) {
	for _, key := range []string{snapshots.KeepAnnotation, snapshots.UndoAnnotation} {
		if value := r.Annotations[key]; value != old.Annotations[key] {
			errs = append(errs,
				field.Invalid(keepField(key), value, "cannot be changed after creation; make another restore"))
		}
	}
	return errs
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
			!snapshots.RestoreEnded(other) {
			errs = append(errs, field.Invalid(targetField, nil,
				fmt.Sprintf("VirtualMachineRestore %q in progress", other.Name)))
		}
	}
	var snapshot v1beta1.VirtualMachineSnapshot
	if err := a.read(ctx, restore.Namespace, restore.Spec.VirtualMachineSnapshotName, &snapshot); err != nil ||
		snapshot.Status == nil || snapshot.Status.VirtualMachineSnapshotContentName == nil {
		return errs, err // it may come yet
	}
	var taken v1beta1.VirtualMachineSnapshotContent
	err = a.read(ctx, restore.Namespace, *snapshot.Status.VirtualMachineSnapshotContentName, &taken)
	if err != nil {
		return nil, err
	}
	source := taken.Spec.Source.VirtualMachine
	// The state goes by the name of the VM, so a VM that is made again under its name has it.
	if snapshots.HasState(&taken) && source.Name != restore.Spec.Target.Name {
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
	switch into.(type) {
	case *v1beta1.VirtualMachineRestoreList, *v1.VirtualMachineInstanceMigrationList:
	default:
		if name == "" {
			return nil
		}
	}
	if err := a.referents.Read(ctx, namespace, name, into); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// validateResuming refuses changes of the guest of a VM that goes on from its memory at the next start: that has the
// devices and sizes of the snapshot, whatever the template says.
func validateResuming(vm, old *v1.VirtualMachine, by surface.Actor) field.ErrorList {
	if old == nil || by.Component || vm.Spec.Template == nil || old.Spec.Template == nil ||
		savedmemory.Pending(vm) == nil || savedmemory.Pending(old) == nil {
		return nil
	}
	var changed *field.Path
	switch {
	case !equality.Semantic.DeepEqual(vm.Spec.Template.Spec.Domain, old.Spec.Template.Spec.Domain):
		changed = specField.Child("template", "spec", "domain")
	case !equality.Semantic.DeepEqual(vm.Spec.Instancetype, old.Spec.Instancetype):
		changed = specField.Child("instancetype")
	case !equality.Semantic.DeepEqual(vm.Spec.Preference, old.Spec.Preference):
		changed = specField.Child("preference")
	default:
		return nil
	}
	return field.ErrorList{
		field.Forbidden(changed, "the next start goes on from the guest's memory in a snapshot, with the "+
			"devices and sizes that it has there; start the VM before you change it, or have it boot: "+
			savedmemory.Forget(vm.Namespace, vm.Name)),
	}
}

// validateHeld refuses changes of a VM that is being snapshotted or restored. virt-controller, which does both, may.
func validateHeld(vm, old *v1.VirtualMachine, by surface.Actor) field.ErrorList {
	if old == nil || by.Component {
		return nil
	}
	refuse := func(text, in string) field.ErrorList {
		return field.ErrorList{{
			Type: field.ErrorTypeNotSupported, Field: "spec", Detail: fmt.Sprintf(text, in),
		}}
	}
	if in, held := snapshots.RestoreOf(vm); held {
		if strategy, err := vm.RunStrategy(); err != nil || strategy != v1.RunStrategyHalted {
			return refuse("Cannot start VM until restore %q completes", in)
		}
	}
	in, held := snapshots.SnapshotOf(vm)
	if !held || vm.Spec.Template == nil || old.Spec.Template == nil {
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
