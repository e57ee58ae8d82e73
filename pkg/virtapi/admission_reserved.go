package virtapi

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

var (
	annotationsField         = field.NewPath("metadata", "annotations")
	templateAnnotationsField = specField.Child("template", "metadata", "annotations")
)

// validateReserved refuses that anyone but the components writes an annotation of theirs (package reserved) to a VM or
// its template. What is there stays as it is, so that an object that is read, edited and written passes.
func (a *admission) validateReserved(
	ctx context.Context, vm, old *v1.VirtualMachine, by surface.Actor,
) (field.ErrorList, error) {
	if by.Component {
		return nil, nil
	}
	before := annotationsOf(old)
	if _, stays := vm.Annotations[reserved.DisksBrought]; !stays {
		bringing, err := a.bringing(ctx, old)
		if err != nil {
			return nil, err
		}
		if !bringing {
			before = maps.Clone(before)
			delete(before, reserved.DisksBrought)
		}
	}
	errs := reserved.Validate(reserved.VM, vm.Annotations, before, annotationsField)
	return append(errs, reserved.Validate(reserved.Template, templateAnnotations(vm), templateAnnotations(old),
		templateAnnotationsField)...), nil
}

// bringing reports whether a migration is there that may have a VM name again the claims that its annotation says. What
// one that is gone has left there may be removed: later migrations wait for that.
func (a *admission) bringing(ctx context.Context, vm *v1.VirtualMachine) (bool, error) {
	record := volumemigration.RecordOf(vm)
	if record == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	var list v1.VirtualMachineInstanceMigrationList
	if err := a.read(ctx, vm.Namespace, "", &list); err != nil {
		return false, fmt.Errorf("list the migrations of namespace %s: %w", vm.Namespace, err)
	}
	return slices.ContainsFunc(list.Items, func(m v1.VirtualMachineInstanceMigration) bool {
		return m.UID == record.Migration && slices.Contains(m.Finalizers, volumemigration.WithDisksFinalizer)
	}), nil
}

func templateAnnotations(vm *v1.VirtualMachine) map[string]string {
	if vm == nil || vm.Spec.Template == nil {
		return nil
	}
	return vm.Spec.Template.ObjectMeta.Annotations
}
