package surface

import (
	"fmt"
	"reflect"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	kubelabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// replicaSetFields are a VirtualMachineInstanceReplicaSet's own.
var replicaSetFields = []Field{
	{Path: "replicas", Effect: Life, Note: "1 unless set. `virtctl scale`, `kubectl scale` and a " +
		"HorizontalPodAutoscaler change it; docs/sets.md."},
	{Path: "selector", Effect: Life, Note: "Must match the template's labels."},
	{Path: "template.metadata.name", Effect: Life, Note: "What the instances' names begin with, to which five " +
		"characters are added; the set's name and a dash unless set."},
	{Path: "template.metadata.generateName", Effect: Life, Note: "As name, which goes before it."},
	{Path: "template.metadata.labels", Effect: Pod, Note: "On the instance and its pod."},
	{Path: "template.metadata.annotations", Effect: Pod, Note: annotationsNote},
	{Path: "paused", Effect: Life, Note: "Nothing is created, replaced or deleted meanwhile."},
}

// ReplicaSetSettled reports a change that is not checked: one that leaves the spec as it was.
func ReplicaSetSettled(set, old *v1.VirtualMachineInstanceReplicaSet) bool {
	return old != nil && (set.DeletionTimestamp != nil || reflect.DeepEqual(set.Spec, old.Spec))
}

// ValidateVirtualMachineInstanceReplicaSet checks a set and the VMIs that it would make, with the defaults of d.
func ValidateVirtualMachineInstanceReplicaSet(set *v1.VirtualMachineInstanceReplicaSet, d Defaults) field.ErrorList {
	spec := field.NewPath("spec")
	errs := unsupported(set.Spec, replicaSetTree(), spec)
	errs = append(errs, validateReplicas(set.Spec.Replicas, spec.Child("replicas"))...)
	template := spec.Child("template")
	if set.Spec.Template == nil {
		return append(errs, field.Required(template, "is not set; it describes the guests"))
	}
	meta := set.Spec.Template.ObjectMeta
	errs = append(errs, validateMembers(set.Spec.Selector, meta.Labels, spec.Child("selector"),
		template.Child("metadata", "labels"))...)
	for name, prefix := range map[string]string{"name": meta.Name, "generateName": meta.GenerateName} {
		if prefix == "" {
			continue
		}
		for _, problem := range apivalidation.NameIsDNSSubdomain(prefix, true) {
			errs = append(errs, field.Invalid(template.Child("metadata", name), prefix,
				fmt.Sprintf("%q cannot begin a name: %s", prefix, problem)))
		}
	}
	errs = append(errs, validateTemplateMeta(meta, template.Child("metadata"))...)
	instance := set.Spec.Template.Spec.DeepCopy()
	defaultSpec(instance, d)
	errs = append(errs, validateDeviceAnnotations(set.Namespace, meta.Annotations, nil, instance,
		template.Child("metadata", "annotations"))...)
	return append(errs, validateSpec(instance, template.Child("spec"))...)
}

// validateReplicas checks the size of a set; unset is the default.
func validateReplicas(replicas *int32, path *field.Path) field.ErrorList {
	if replicas != nil && *replicas < 0 {
		return field.ErrorList{field.Invalid(path, *replicas, "must not be negative; 0 keeps the set without members")}
	}
	return nil
}

// validateMembers checks that a set's selector finds what its template makes, and not everything else as well.
func validateMembers(selector *metav1.LabelSelector, template map[string]string, path, at *field.Path) field.ErrorList {
	if selector == nil {
		return field.ErrorList{field.Required(path, fmt.Sprintf("is not set; give it matchLabels that %s has too", at))}
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return field.ErrorList{
			field.Invalid(path, "{}", fmt.Sprintf("is empty, which would select everything in the namespace; give it "+
				"matchLabels that %s has too", at)),
		}
	}
	errs := metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)
	if len(errs) > 0 {
		return errs
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(selector), err.Error())}
	}
	if !parsed.Matches(kubelabels.Set(template)) {
		return field.ErrorList{field.Invalid(path, parsed.String(),
			fmt.Sprintf("%q does not match %s (%q), so what is made would not belong to the set; make them agree",
				parsed, at, kubelabels.Set(template)))}
	}
	return nil
}
