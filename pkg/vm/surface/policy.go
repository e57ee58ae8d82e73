package surface

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
)

// policyFields is the table of MigrationPolicy.
var policyFields = []Field{
	{Path: "selectors.namespaceSelector", Effect: Life},
	{Path: "selectors.virtualMachineInstanceSelector", Effect: Life},
	{Path: "allowAutoConverge", Effect: Life},
	{Path: "bandwidthPerMigration", Effect: Life},
	{Path: "completionTimeoutPerGiB", Effect: Life},
	{Path: "allowPostCopy", Effect: Life},
	{Path: "allowWorkloadDisruption", Effect: Life, Note: "As allowPostCopy of the policy unless set."},
}

// longestMigration bounds timeouts of migrations, so that their sums and multiples fit.
const longestMigration = 365 * 24 * time.Hour

// ValidateMigrationPolicy checks a policy; old is nil at creation.
func ValidateMigrationPolicy(policy, old *v1alpha1.MigrationPolicy) field.ErrorList {
	if old != nil && (policy.DeletionTimestamp != nil || reflect.DeepEqual(policy.Spec, old.Spec)) {
		return nil
	}
	spec := field.NewPath("spec")
	errs := unsupported(policy.Spec, policyTree(), spec)
	selectors := spec.Child("selectors")
	if policy.Spec.Selectors == nil {
		errs = append(errs, field.Required(selectors,
			"is not set; set namespaceSelector or virtualMachineInstanceSelector, or {} for every migration"))
	} else {
		errs = append(errs, metavalidation.ValidateLabels(policy.Spec.Selectors.NamespaceSelector,
			selectors.Child("namespaceSelector"))...)
		errs = append(errs, metavalidation.ValidateLabels(policy.Spec.Selectors.VirtualMachineInstanceSelector,
			selectors.Child("virtualMachineInstanceSelector"))...)
	}
	errs = append(errs, validateBandwidth(policy.Spec.BandwidthPerMigration, spec.Child("bandwidthPerMigration"))...)
	return append(errs, validateSeconds(policy.Spec.CompletionTimeoutPerGiB, spec.Child("completionTimeoutPerGiB"))...)
}

// validateMigrations checks the KubeVirt resource's configuration of migrations.
func validateMigrations(m *v1.MigrationConfiguration, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	errs := validateBandwidth(m.BandwidthPerMigration, path.Child("bandwidthPerMigration"))
	errs = append(errs, validateSeconds(m.CompletionTimeoutPerGiB, path.Child("completionTimeoutPerGiB"))...)
	errs = append(errs, validateSeconds(m.ProgressTimeout, path.Child("progressTimeout"))...)
	if key := m.NodeDrainTaintKey; key != nil {
		if problems := validation.IsQualifiedName(*key); len(problems) > 0 {
			errs = append(errs, field.Invalid(path.Child("nodeDrainTaintKey"), *key,
				fmt.Sprintf("%q is not the key of a taint, as kubevirt.io/drain is", *key)))
		}
	}
	for name, n := range map[string]*uint32{
		"parallelMigrationsPerCluster":      m.ParallelMigrationsPerCluster,
		"parallelOutboundMigrationsPerNode": m.ParallelOutboundMigrationsPerNode,
	} {
		if n != nil && *n == 0 {
			errs = append(errs, field.Invalid(path.Child(name), *n,
				"must be at least 1: nothing could move; leave it out for the default"))
		}
	}
	return errs
}

func validateBandwidth(q *resource.Quantity, path *field.Path) field.ErrorList {
	switch {
	case q == nil:
		return nil
	case q.Sign() < 0:
		return field.ErrorList{
			field.Invalid(path, q.String(), "must not be negative; it is bytes a second, and 0 is no limit"),
		}
	case q.Sign() > 0 && q.Cmp(*resource.NewQuantity(1<<20, resource.BinarySI)) < 0:
		return field.ErrorList{
			field.Invalid(path, q.String(), "must be 0 (no limit) or at least 1Mi; it is bytes a second"),
		}
	case q.Cmp(*resource.NewQuantity(math.MaxInt64>>1, resource.BinarySI)) > 0:
		return field.ErrorList{field.Invalid(path, q.String(), "is too large; it is bytes a second, and 0 is no limit")}
	}
	return nil
}

func validateSeconds(n *int64, path *field.Path) field.ErrorList {
	if n != nil && *n < 0 {
		return field.ErrorList{field.Invalid(path, *n, "must not be negative; it is seconds, and 0 is no limit")}
	}
	return nil
}

// MigrationTime returns a timeout of a migration that is given in seconds. KubeVirt takes any number; more than a year
// is a year.
func MigrationTime(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(longestMigration/time.Second))) * time.Second
}
