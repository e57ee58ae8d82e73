package surface

import (
	"fmt"
	"reflect"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// migrationFields is the table of VirtualMachineInstanceMigration.
var migrationFields = []Field{
	{Path: "vmiName", Effect: Life},
	{Path: "addedNodeSelector", Effect: Pod, Note: "Of the pod to which the guest moves."},
}

// ValidateVirtualMachineInstanceMigration checks a migration, whose spec cannot change. old is nil at creation.
// Whether the VMI can move is ValidateMigrationOf's.
func ValidateVirtualMachineInstanceMigration(migration, old *v1.VirtualMachineInstanceMigration) field.ErrorList {
	spec := field.NewPath("spec")
	if old != nil {
		if !reflect.DeepEqual(migration.Spec, old.Spec) {
			return field.ErrorList{
				field.Forbidden(spec, "cannot be changed; delete the migration, which cancels it, and create another"),
			}
		}
		if name := old.Labels[v1.MigrationSelectorLabel]; name != "" &&
			migration.Labels[v1.MigrationSelectorLabel] != name && migration.DeletionTimestamp == nil {
			return field.ErrorList{field.Forbidden(field.NewPath("metadata", "labels").Key(v1.MigrationSelectorLabel),
				fmt.Sprintf("cannot be changed from %q, by which the migration is found", name))}
		}
		if migration.Annotations[volumemigration.WithDisksAnnotation] !=
			old.Annotations[volumemigration.WithDisksAnnotation] {
			return field.ErrorList{field.Forbidden(withDisksPath,
				"cannot be changed; delete the migration, which cancels it, and create another")}
		}
		return nil
	}
	errs := append(unsupported(migration.Spec, migrationTree(), spec), validateWithDisks(migration)...)
	if migration.Spec.VMIName == "" {
		errs = append(errs,
			field.Required(spec.Child("vmiName"), "is not set; it names the VirtualMachineInstance to move"))
	}
	return append(errs,
		metavalidation.ValidateLabels(migration.Spec.AddedNodeSelector, spec.Child("addedNodeSelector"))...)
}

var withDisksPath = field.NewPath("metadata", "annotations").Key(volumemigration.WithDisksAnnotation)

func validateWithDisks(migration *v1.VirtualMachineInstanceMigration) field.ErrorList {
	switch value, given := migration.Annotations[volumemigration.WithDisksAnnotation]; {
	case !given, value == "true", value == "false":
		return nil
	default:
		return field.ErrorList{field.NotSupported(withDisksPath, value, []string{"true", "false"})}
	}
}

// ValidateMigrationOf checks that the VMI that a new migration names can move; vmi is nil when there is none. A VMI
// that another migration moves can: the new one waits.
func ValidateMigrationOf(
	vmi *v1.VirtualMachineInstance, migration *v1.VirtualMachineInstanceMigration,
) field.ErrorList {
	at, name := field.NewPath("spec", "vmiName"), migration.Spec.VMIName
	switch {
	case vmi == nil:
		err := field.NotFound(at, name)
		err.Detail = fmt.Sprintf("there is no VirtualMachineInstance %q in namespace %s; only a VM that runs can move",
			name, migration.Namespace)
		return field.ErrorList{err}
	case vmi.IsFinal():
		return field.ErrorList{field.Invalid(at, name,
			fmt.Sprintf("Cannot migrate VMI in finalized state: %q has %s", name, vmi.Status.Phase))}
	}
	if why := volumemigration.RefusalOf(vmi, migration); why != "" {
		return field.ErrorList{field.Invalid(at, name, why)}
	}
	return nil
}
