package virtapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// lookup bounds what a webhook spends on reading what a VM refers to; the API server waits 10 s for the whole.
const lookup = 8 * time.Second

// referents reads what a VM may refer to, straight from the API: it is asked once or twice in a VM's life.
type referents struct {
	rest rest.Interface
}

// Read implements instancetype.Reader.
func (r referents) Read(ctx context.Context, namespace, name string, into runtime.Object) error {
	path := []string{"/apis", v1beta1.SchemeGroupVersion.Group, v1beta1.SchemeGroupVersion.Version}
	var resource string
	switch into.(type) {
	case *v1beta1.VirtualMachineInstancetype:
		resource = "virtualmachineinstancetypes"
	case *v1beta1.VirtualMachineClusterInstancetype:
		resource = "virtualmachineclusterinstancetypes"
	case *v1beta1.VirtualMachinePreference:
		resource = "virtualmachinepreferences"
	case *v1beta1.VirtualMachineClusterPreference:
		resource = "virtualmachineclusterpreferences"
	case *appsv1.ControllerRevision:
		path, resource = []string{"/apis/apps/v1"}, "controllerrevisions"
	case *corev1.PersistentVolumeClaim:
		path, resource = []string{"/api/v1"}, "persistentvolumeclaims"
	case *cdiv1.DataSource:
		path, resource = []string{"/apis", cdiv1.SchemeGroupVersion.Group, cdiv1.SchemeGroupVersion.Version},
			"datasources"
	case *v1.VirtualMachineInstanceMigrationList:
		path, resource = []string{"/apis", v1.GroupVersion.Group, v1.GroupVersion.Version},
			virtualMachineInstanceMigrations
	case *v1.VirtualMachine:
		path, resource = []string{"/apis", v1.GroupVersion.Group, v1.GroupVersion.Version}, "virtualmachines"
	case *snapshotv1beta1.VirtualMachineSnapshot:
		path, resource = snapshotsPath(), "virtualmachinesnapshots"
	case *snapshotv1beta1.VirtualMachineSnapshotContent:
		path, resource = snapshotsPath(), "virtualmachinesnapshotcontents"
	case *snapshotv1beta1.VirtualMachineRestoreList:
		path, resource = snapshotsPath(), "virtualmachinerestores"
	default:
		return fmt.Errorf("nothing is known of %T", into)
	}
	for _, part := range []string{namespace, name} {
		if strings.ContainsAny(part, "/?#%") || part == "." || part == ".." {
			return fmt.Errorf("%q is no name", part)
		}
	}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	result := r.rest.Get().AbsPath(append(path, resource, name)...).Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func snapshotsPath() []string {
	return []string{"/apis", snapshotv1beta1.SchemeGroupVersion.Group, snapshotv1beta1.SchemeGroupVersion.Version}
}

// refer fills in what a new VM's references leave open: the volume that they are inferred from, their kind, the storage
// class of its DataVolumes, and the machine type and architecture that the preference has, which the template keeps for
// life.
func (a *admission) refer(ctx context.Context, vm *v1.VirtualMachine, d surface.Defaults) (surface.Defaults, error) {
	if vm.Spec.Instancetype == nil && vm.Spec.Preference == nil {
		return d, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	if err := instancetype.Infer(ctx, a.referents, vm); err != nil {
		return d, err
	}
	if m := vm.Spec.Instancetype; m != nil && m.Kind == "" {
		m.Kind = "virtualmachineclusterinstancetype"
	}
	m := vm.Spec.Preference
	if m == nil {
		return d, nil
	}
	if m.Kind == "" {
		m.Kind = "virtualmachineclusterpreference"
	}
	resolved, err := instancetype.Resolve(ctx, a.referents, vm)
	if err != nil && instancetype.Absent(err) == nil {
		return d, err
	}
	if d.Undecided = resolved.Preference == nil; d.Undecided {
		return d, nil
	}
	preference := resolved.Preference.Preference
	instancetype.PreferStorageClass(preference, vm)
	if preference.Machine != nil && preference.Machine.PreferredMachineType != "" {
		d.MachineType = preference.Machine.PreferredMachineType
	}
	if preference.PreferredArchitecture != nil {
		d.Architecture = *preference.PreferredArchitecture
	}
	return d, nil
}

// expands reports whether a VM's instance type and preference are written into it rather than kept: those of a new VM
// that names no revision, or all.
func expands(vm, old *v1.VirtualMachine, policy v1.InstancetypeReferencePolicy) bool {
	if vm.Spec.Instancetype == nil && vm.Spec.Preference == nil {
		return false
	}
	switch policy {
	case v1.ExpandAll:
		return true
	case v1.Expand:
		revision := vm.Spec.Instancetype != nil && vm.Spec.Instancetype.RevisionName != "" ||
			vm.Spec.Preference != nil && vm.Spec.Preference.RevisionName != ""
		return old == nil && !revision
	}
	return false
}

// expand writes the instance type and preference of vm into it. What conflicts or is not there stays, for the
// validation to say so.
func (a *admission) expand(ctx context.Context, vm *v1.VirtualMachine) error {
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	resolved, err := instancetype.Resolve(ctx, a.referents, vm)
	var missing *instancetype.NotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	if template, errs := instancetype.Expand(vm, resolved); len(errs) == 0 {
		vm.Spec.Template, vm.Spec.Instancetype, vm.Spec.Preference = template, nil, nil
	}
	return nil
}

var templateSpec = field.NewPath("spec", "template", "spec")

// validateReferring checks a VM together with what it refers to. What is absent is a warning, and the VM waits for it:
// objects may be applied in any order.
func (a *admission) validateReferring(
	ctx context.Context, vm *v1.VirtualMachine,
) (errs field.ErrorList, warnings []string, err error) {
	if vm.Spec.Instancetype == nil && vm.Spec.Preference == nil || vm.Spec.Template == nil {
		d := a.defaults()
		errs := surface.ValidateVirtualMachine(vm, d)
		if vm.Spec.Template != nil {
			errs = append(errs, d.Allowed.Validate(&vm.Spec.Template.Spec, templateSpec)...)
		}
		return errs, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	resolved, err := instancetype.Resolve(ctx, a.referents, vm)
	var missing *instancetype.NotFoundError
	switch {
	case err == nil:
	case !errors.As(err, &missing):
		return nil, nil, err
	case !missing.Absent:
		return missing.List(), nil, nil
	default:
		for _, absent := range instancetype.AllAbsent(err) {
			warnings = append(warnings, absent.Error()+"; the VM does not start before")
		}
		if resolved.Instancetype == nil {
			resolved = instancetype.Resolved{} // what a preference requires, the instance type may bring
		}
	}
	template, errs := instancetype.Expand(vm, resolved)
	if len(errs) > 0 {
		return errs, nil, nil // what it all makes is not known, so there is nothing more to check
	}
	d := a.defaults()
	errs = surface.ValidateExpanded(vm, &template.Spec, d)
	return append(errs, d.Allowed.Validate(&template.Spec, templateSpec)...), warnings, nil
}

// expanded returns vm with what it refers to written out, as `virtctl expand` prints it.
func expanded(ctx context.Context, r instancetype.Reader, vm *v1.VirtualMachine) (*v1.VirtualMachine, error) {
	if vm.Spec.Template == nil || vm.Spec.Instancetype == nil && vm.Spec.Preference == nil {
		return withKind(vm), nil
	}
	out := vm.DeepCopy()
	if err := instancetype.Infer(ctx, r, out); err != nil {
		return nil, referenceError(err)
	}
	resolved, err := instancetype.Resolve(ctx, r, out)
	if err != nil {
		return nil, referenceError(err)
	}
	template, errs := instancetype.Expand(out, resolved)
	if conflict := instancetype.Conflict(errs...); conflict != "" {
		return nil, badRequest(conflict)
	}
	if len(errs) > 0 {
		return nil, badRequest(surface.Message(errs))
	}
	out.Spec.Template = template
	out.Spec.Instancetype, out.Spec.Preference = nil, nil
	return withKind(out), nil
}

// referenceError returns an error about what a VM names as the request's fault; about a missing object in the API
// server's words, as KubeVirt does.
func referenceError(err error) error {
	var missing *instancetype.NotFoundError
	if errors.As(err, &missing) {
		if missing.Object != nil {
			return badRequest(missing.Object.Error())
		}
		return badRequest(missing.Error())
	}
	return err
}
