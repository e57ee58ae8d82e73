package surface

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateAffinity checks what the API server would refuse in the pod, where it would come back as an event only.
// The rules are Kubernetes' for pods.
func validateAffinity(affinity *corev1.Affinity, at *field.Path) field.ErrorList {
	if affinity == nil {
		return nil
	}
	var errs field.ErrorList
	if node := affinity.NodeAffinity; node != nil {
		errs = append(errs, validateNodeAffinity(node, at.Child("nodeAffinity"))...)
	}
	if pods := affinity.PodAffinity; pods != nil {
		errs = append(errs, validatePodTerms(pods.RequiredDuringSchedulingIgnoredDuringExecution,
			pods.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))...)
	}
	if pods := affinity.PodAntiAffinity; pods != nil {
		errs = append(errs, validatePodTerms(pods.RequiredDuringSchedulingIgnoredDuringExecution,
			pods.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))...)
	}
	return errs
}

const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func validateNodeAffinity(affinity *corev1.NodeAffinity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if selector := affinity.RequiredDuringSchedulingIgnoredDuringExecution; selector != nil {
		terms := at.Child(required, "nodeSelectorTerms")
		if len(selector.NodeSelectorTerms) == 0 {
			errs = append(errs,
				field.Required(terms, "has no term, so that no node would do; add one or remove "+required))
		}
		for i := range selector.NodeSelectorTerms {
			errs = append(errs, validateNodeTerm(&selector.NodeSelectorTerms[i], terms.Index(i))...)
		}
	}
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		term := &affinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
		here := at.Child(preferred).Index(i)
		errs = append(errs, validateWeight(term.Weight, here)...)
		errs = append(errs, validateNodeTerm(&term.Preference, here.Child("preference"))...)
	}
	return errs
}

func validateNodeTerm(term *corev1.NodeSelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, requirement := range term.MatchExpressions {
		here := at.Child("matchExpressions").Index(i)
		errs = append(errs, validateKey(requirement.Key, here.Child("key"))...)
		errs = append(errs, validateNodeRequirement(requirement, here)...)
	}
	for i, requirement := range term.MatchFields {
		here := at.Child("matchFields").Index(i)
		if requirement.Key != metav1.ObjectNameField {
			errs = append(errs,
				field.Invalid(here.Child("key"), requirement.Key,
					fmt.Sprintf("%q is not a field of nodes that can be asked for; use %s", requirement.Key,
						metav1.ObjectNameField)))
		}
		switch {
		case requirement.Operator != corev1.NodeSelectorOpIn && requirement.Operator != corev1.NodeSelectorOpNotIn:
			errs = append(errs, field.Invalid(here.Child("operator"), requirement.Operator,
				fmt.Sprintf("%q is not an operator for fields; use In or NotIn", requirement.Operator)))
		case len(requirement.Values) != 1:
			errs = append(errs, field.Invalid(here.Child("values"), len(requirement.Values),
				fmt.Sprintf("has %d values; a field takes one", len(requirement.Values))))
		}
	}
	return errs
}

func validateNodeRequirement(requirement corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	values, n := at.Child("values"), len(requirement.Values)
	switch operator := requirement.Operator; operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if n == 0 {
			return field.ErrorList{
				field.Required(values, fmt.Sprintf("are not set; operator %s needs at least one", operator)),
			}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if n > 0 {
			return field.ErrorList{
				field.Forbidden(values, fmt.Sprintf("cannot be set with operator %s; remove them", operator)),
			}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if n != 1 {
			return field.ErrorList{
				field.Required(values, fmt.Sprintf("are %d; operator %s needs exactly one", n, operator)),
			}
		}
		if _, err := strconv.ParseInt(requirement.Values[0], 10, 64); err != nil {
			return field.ErrorList{field.Invalid(values.Index(0), requirement.Values[0],
				fmt.Sprintf("%q is not a whole number, which operator %s compares", requirement.Values[0], operator))}
		}
	default:
		return field.ErrorList{field.Invalid(at.Child("operator"), operator,
			fmt.Sprintf("%q is not an operator; use In, NotIn, Exists, DoesNotExist, Gt or Lt", operator))}
	}
	return nil
}

func validateWeight(weight int32, at *field.Path) field.ErrorList {
	if weight >= 1 && weight <= 100 {
		return nil
	}
	return field.ErrorList{
		field.Invalid(at.Child("weight"), weight, fmt.Sprintf("%d is not a weight; use 1 to 100", weight)),
	}
}

func validatePodTerms(
	must []corev1.PodAffinityTerm, may []corev1.WeightedPodAffinityTerm, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i := range must {
		errs = append(errs, validatePodTerm(&must[i], at.Child(required).Index(i))...)
	}
	for i := range may {
		here := at.Child(preferred).Index(i)
		errs = append(errs, validateWeight(may[i].Weight, here)...)
		errs = append(errs, validatePodTerm(&may[i].PodAffinityTerm, here.Child("podAffinityTerm"))...)
	}
	return errs
}

func validatePodTerm(term *corev1.PodAffinityTerm, at *field.Path) field.ErrorList {
	errs := validateTopologyKey(term.TopologyKey, at.Child("topologyKey"))
	errs = append(errs, validateSelector(term.LabelSelector, at.Child("labelSelector"))...)
	errs = append(errs, validateSelector(term.NamespaceSelector, at.Child("namespaceSelector"))...)
	for i, namespace := range term.Namespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			errs = append(errs, field.Invalid(at.Child("namespaces").
				Index(i), namespace, fmt.Sprintf("%q is not the name of a namespace", namespace)))
		}
	}
	for name, keys := range map[string][]string{
		"matchLabelKeys":    term.MatchLabelKeys,
		"mismatchLabelKeys": term.MismatchLabelKeys,
	} {
		errs = append(errs, validateLabelKeys(keys, term.LabelSelector, at.Child(name))...)
	}
	return errs
}

// validateLabelKeys checks labels whose values are taken from the pod itself and added to a selector.
func validateLabelKeys(keys []string, selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if len(keys) == 0 {
		return nil
	}
	if selector == nil {
		return field.ErrorList{field.Forbidden(at, "cannot be set without labelSelector, to which they are added")}
	}
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, validateKey(key, at.Index(i))...)
	}
	return errs
}

func validateTopologyKey(key string, at *field.Path) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(at, "is not set; kubernetes.io/hostname makes each node one")}
	}
	return validateKey(key, at)
}

// validateKey checks the key of a label or taint.
func validateKey(key string, at *field.Path) field.ErrorList {
	return validateRequiredName(key, at, "the key of a label or taint", validation.IsQualifiedName)
}

func validateSelector(selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)
}

func validateTopologySpread(spreads []corev1.TopologySpreadConstraint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	type kind struct{ key, action string }
	seen := map[kind]bool{}
	for i := range spreads {
		spread, here := &spreads[i], at.Index(i)
		if spread.MaxSkew < 1 {
			errs = append(errs, field.Invalid(here.Child("maxSkew"), spread.MaxSkew, "must be 1 or more"))
		}
		errs = append(errs, validateTopologyKey(spread.TopologyKey, here.Child("topologyKey"))...)
		action := spread.WhenUnsatisfiable
		if action != corev1.DoNotSchedule && action != corev1.ScheduleAnyway {
			errs = append(errs, field.Invalid(here.Child("whenUnsatisfiable"), action,
				fmt.Sprintf("%q does not say what to do; use DoNotSchedule or ScheduleAnyway", action)))
		}
		if this := (kind{spread.TopologyKey, string(action)}); seen[this] {
			errs = append(errs,
				field.Invalid(here, spread.TopologyKey,
					fmt.Sprintf("there is another constraint with topologyKey %s and whenUnsatisfiable %s; keep one",
						this.key, this.action)))
		} else {
			seen[this] = true
		}
		if n := spread.MinDomains; n != nil {
			switch {
			case *n < 1:
				errs = append(errs, field.Invalid(here.Child("minDomains"), *n, "must be 1 or more"))
			case action == corev1.ScheduleAnyway:
				errs = append(errs,
					field.Forbidden(here.Child("minDomains"), "is for whenUnsatisfiable: DoNotSchedule; remove it"))
			}
		}
		for name, policy := range map[string]*corev1.NodeInclusionPolicy{
			"nodeAffinityPolicy": spread.NodeAffinityPolicy, "nodeTaintsPolicy": spread.NodeTaintsPolicy,
		} {
			if policy != nil && *policy != corev1.NodeInclusionPolicyHonor &&
				*policy != corev1.NodeInclusionPolicyIgnore {
				errs = append(errs, field.Invalid(here.Child(name), *policy,
					fmt.Sprintf("%q is not a policy; use Honor or Ignore", *policy)))
			}
		}
		errs = append(errs, validateSelector(spread.LabelSelector, here.Child("labelSelector"))...)
		errs = append(errs,
			validateLabelKeys(spread.MatchLabelKeys, spread.LabelSelector, here.Child("matchLabelKeys"))...)
	}
	return errs
}

// tolerationOperators has those that need a feature gate of the cluster, too; the cluster says so then.
var tolerationOperators = []corev1.TolerationOperator{
	"", corev1.TolerationOpEqual,
	corev1.TolerationOpExists, "Gt", "Lt",
}

var taintEffects = []corev1.TaintEffect{
	"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
	corev1.TaintEffectNoExecute,
}

func validateToleration(toleration corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if toleration.Key != "" {
		errs = append(errs, validateKey(toleration.Key, at.Child("key"))...)
	}
	switch exists := toleration.Operator == corev1.TolerationOpExists; {
	case !slices.Contains(tolerationOperators, toleration.Operator):
		errs = append(errs, field.Invalid(at.Child("operator"), toleration.Operator,
			fmt.Sprintf("%q is not an operator; use Equal or Exists", toleration.Operator)))
	case exists && toleration.Value != "":
		errs = append(errs, field.Forbidden(at.Child("value"), "cannot be set with operator Exists"))
	case !exists && toleration.Key == "":
		errs = append(errs, field.Required(at.Child("key"), "is not set; only operator Exists goes without"))
	case !exists && len(validation.IsValidLabelValue(toleration.Value)) > 0:
		errs = append(errs, field.Invalid(at.Child("value"), toleration.Value,
			fmt.Sprintf("%q is not the value of a taint", toleration.Value)))
	}
	if !slices.Contains(taintEffects, toleration.Effect) {
		errs = append(errs,
			field.Invalid(at.Child("effect"), toleration.Effect,
				fmt.Sprintf("%q is not an effect; use NoSchedule, PreferNoSchedule or NoExecute, or none for all",
					toleration.Effect)))
	}
	if toleration.TolerationSeconds != nil && toleration.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs,
			field.Forbidden(at.Child("tolerationSeconds"), "is for effect NoExecute; set that or remove it"))
	}
	return errs
}
