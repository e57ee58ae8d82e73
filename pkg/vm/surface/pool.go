package surface

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	kubelabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// maxPoolName is the greatest length of a pool's name, characters: the names of its VMs and of its revisions, which are
// labels, have a dash and up to ten digits more.
const maxPoolName = 52

// poolFields are a VirtualMachinePool's own.
var poolFields = []Field{
	{Path: "replicas", Effect: Life, Note: "1 unless set. `virtctl scale`, `kubectl scale` and a " +
		"HorizontalPodAutoscaler change it; docs/sets.md."},
	{Path: "selector", Effect: Life, Note: "Must match the template's labels, and cannot be changed. A VM that does " +
		"not match any more leaves the pool."},
	{Path: "virtualMachineTemplate.metadata.labels", Effect: Life, Note: "On the VirtualMachine."},
	{Path: "virtualMachineTemplate.metadata.annotations", Effect: Life, Note: "On the VirtualMachine."},
	{Path: "paused", Effect: Life, Note: "Nothing is created, updated or deleted meanwhile."},
	{
		Path: "nameGeneration.appendIndexToConfigMapRefs", Effect: Life,
		Note: "Of volumes: pool-0 has the ConfigMap NAME-0.",
	},
	{Path: "nameGeneration.appendIndexToSecretRefs", Effect: Life, Note: "Of volumes: pool-0 has the Secret NAME-0."},
	{Path: "maxUnavailable", Effect: Life, Note: "100% unless set, at least one; percentages are of replicas and " +
		"rounded down."},
	{Path: "scaleInStrategy.unmanaged", Effect: Life, Note: "Nothing is deleted when replicas shrinks."},
	{
		Path: "scaleInStrategy.opportunistic.statePreservation", Effect: Life, Only: preservations[:1],
		Note: "Nothing is deleted when replicas shrinks, and what somebody else deletes is not made anew then.",
	},
	{
		Path: "scaleInStrategy.proactive.selectionPolicy.sortPolicy", Effect: Life, Only: sortPolicies,
		Note: "Random unless set.",
	},
	{
		Path: "scaleInStrategy.proactive.selectionPolicy.selectors.labelSelector", Effect: Life,
		Note: "Of the VM's labels and those of its template.",
	},
	{
		Path: "scaleInStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher", Effect: Life,
		Note: "Of the nodeSelector of the VM's template.",
	},
	{
		Path: "scaleInStrategy.proactive.statePreservation", Effect: Life, Only: preservations,
		Note: "Offline keeps the claims and DataVolumes of a VM that is deleted for one of its name to come; Online " +
			"does the same, since nothing keeps its memory, and a warning says so.",
	},
	{Path: "updateStrategy.unmanaged", Effect: Life, Note: "A changed template is for VMs that are made from now on."},
	{Path: "updateStrategy.opportunistic", Effect: Life, Note: "The VMs are changed, and their guests when they are " +
		"started again."},
	{
		Path: "updateStrategy.proactive.selectionPolicy.sortPolicy", Effect: Life, Only: sortPolicies,
		Note: "Random unless set.",
	},
	{
		Path: "updateStrategy.proactive.selectionPolicy.selectors.labelSelector", Effect: Life,
		Note: "Of the VM's labels and those of its template.",
	},
	{
		Path: "updateStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher", Effect: Life,
		Note: "Of the nodeSelector of the VM's template.",
	},
	{Path: "autohealing.startUpFailureThreshold", Effect: Life, Note: "3 unless set."},
	{Path: "autohealing.minFailingToStartDuration", Effect: Life, Note: "5m unless set; since the VM is not ready."},
}

var sortPolicies = []string{
	string(v1beta1.VirtualMachinePoolSortPolicyAscendingOrder),
	string(v1beta1.VirtualMachinePoolSortPolicyDescendingOrder),
	string(v1beta1.VirtualMachinePoolSortPolicyNewest), string(v1beta1.VirtualMachinePoolSortPolicyOldest),
	string(v1beta1.VirtualMachinePoolSortPolicyRandom),
}

var preservations = []string{
	string(v1beta1.StatePreservationDisabled), string(v1beta1.StatePreservationOffline),
	string(v1beta1.StatePreservationOnline),
}

// PoolWarnings returns a warning for each field of a pool that has its effect in part only.
func PoolWarnings(pool *v1beta1.VirtualMachinePool) []string {
	var out []string
	if s := pool.Spec.ScaleInStrategy; s != nil && s.Proactive != nil && s.Proactive.StatePreservation != nil &&
		*s.Proactive.StatePreservation == v1beta1.StatePreservationOnline {
		out = append(out, "spec.scaleInStrategy.proactive.statePreservation: Online keeps the disks of VMs that are "+
			"scaled in, as Offline does, and not their memory")
	}
	if made := pool.Spec.VirtualMachineTemplate; made != nil && made.Spec.Template != nil {
		if macs := sharedMACs(pool.Namespace, &made.Spec.Template.Spec); macs != "" {
			out = append(out, "spec.virtualMachineTemplate.spec.template.spec."+macs+" is given to every VM of the "+
				"pool, and only one of them runs: the others wait, and say MACAddressInUse; leave macAddress out, "+
				"and each VM gets an address of its own")
		}
		if ips := sharedIPs(pool.Namespace, made.Spec.Template); ips != "" {
			out = append(out, "spec.virtualMachineTemplate.spec.template.metadata."+ips+" is given to every VM of the "+
				"pool, and only one of them runs: the others wait, and say IPAddressInUse; remove the annotation, and "+
				"each VM gets an address of its own")
		}
	}
	return out
}

// ReplicaSetWarnings returns a warning for each field of a replica set's template that does not fit more than one VMI.
func ReplicaSetWarnings(set *v1.VirtualMachineInstanceReplicaSet) []string {
	if set.Spec.Template == nil {
		return nil
	}
	var out []string
	if macs := sharedMACs(set.Namespace, &set.Spec.Template.Spec); macs != "" {
		out = append(out, "spec.template.spec."+macs+" is given to every instance of the set, and two of them on one "+
			"network take each other's frames; leave macAddress out, and each instance gets an address of its own")
	}
	if ips := sharedIPs(set.Namespace, set.Spec.Template); ips != "" {
		out = append(out, "spec.template.metadata."+ips+" is given to every instance of the set, and two of them on "+
			"one network are taken for each other; remove the annotation, and each instance gets an address of its own")
	}
	return out
}

// sharedIPs names the IP addresses that guests made from a template are all wished to have, with the annotation; "" for
// none.
func sharedIPs(namespace string, template *v1.VirtualMachineInstanceTemplateSpec) string {
	var ips []string
	for _, claim := range ipaddress.OfVMI(&v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Annotations: template.ObjectMeta.Annotations},
		Spec:       template.Spec,
	}) {
		if claim.Wished {
			ips = append(ips, claim.Address.String())
		}
	}
	if len(ips) == 0 {
		return ""
	}
	return "annotations[" + ipaddress.Wish + "]: " + strings.Join(ips, " and ")
}

// sharedMACs names the MAC addresses of a template that guests made from it would share on a network, with the first
// one's field; "" for none.
func sharedMACs(namespace string, template *v1.VirtualMachineInstanceSpec) string {
	claims := macaddress.OfVMI(&v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: *template,
	})
	at := ""
	var macs []string
	for i := range claims {
		if claim := &claims[i]; claim.Explicit && claim.Shared {
			at = cmp.Or(at, fmt.Sprintf("domain.devices.interfaces[%d].macAddress: ", claim.Index))
			macs = append(macs, claim.MAC)
		}
	}
	return at + strings.Join(macs, " and ")
}

// ValidateVirtualMachinePool checks a pool but for the VM that its template makes: see InPool. old is nil at creation.
func ValidateVirtualMachinePool(pool, old *v1beta1.VirtualMachinePool) field.ErrorList {
	spec := field.NewPath("spec")
	errs := unsupported(pool.Spec, poolTree(), spec)
	if n := len(pool.Name); n > maxPoolName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), pool.Name,
			fmt.Sprintf("has %d characters; %d is the most, since the names of its VMs have a dash and a number more",
				n, maxPoolName)))
	}
	errs = append(errs, validateReplicas(pool.Spec.Replicas, spec.Child("replicas"))...)
	template := spec.Child("virtualMachineTemplate")
	if pool.Spec.VirtualMachineTemplate == nil {
		return append(errs, field.Required(template, "is not set; it describes the VMs"))
	}
	meta := pool.Spec.VirtualMachineTemplate.ObjectMeta
	errs = append(errs, validateMembers(pool.Spec.Selector, meta.Labels, spec.Child("selector"),
		template.Child("metadata", "labels"))...)
	if old != nil && !reflect.DeepEqual(pool.Spec.Selector, old.Spec.Selector) {
		errs = append(errs, field.Forbidden(spec.Child("selector"),
			"cannot be changed, since it says which VMs are the pool's; make another pool"))
	}
	errs = append(errs, metavalidation.ValidateLabels(meta.Labels, template.Child("metadata", "labels"))...)
	errs = append(errs,
		apivalidation.ValidateAnnotations(meta.Annotations, template.Child("metadata", "annotations"))...)
	errs = append(errs, validateMaxUnavailable(pool.Spec.MaxUnavailable, spec.Child("maxUnavailable"))...)
	errs = append(errs, validateScaleIn(pool.Spec.ScaleInStrategy, spec.Child("scaleInStrategy"))...)
	errs = append(errs, validateUpdateStrategy(pool.Spec.UpdateStrategy, spec.Child("updateStrategy"))...)
	return append(errs, validateAutohealing(pool.Spec.Autohealing, spec.Child("autohealing"))...)
}

// PoolSettled reports a change that is not checked.
func PoolSettled(pool, old *v1beta1.VirtualMachinePool) bool {
	return old != nil && (pool.DeletionTimestamp != nil || reflect.DeepEqual(pool.Spec, old.Spec))
}

// InPool returns the errors of a VM that a pool's template makes, as errors of the pool: the fields are the template's,
// and what the pool itself reports already is left out.
func InPool(errs field.ErrorList) field.ErrorList {
	var out field.ErrorList
	for _, err := range errs {
		if rest, ok := strings.CutPrefix(err.Field, "spec"); ok && !IsUnsupported(err) {
			moved := *err
			moved.Field = "spec.virtualMachineTemplate.spec" + rest
			out = append(out, &moved)
		}
	}
	return out
}

func validateMaxUnavailable(most *intstr.IntOrString, path *field.Path) field.ErrorList {
	if most == nil {
		return nil
	}
	if most.Type == intstr.Int {
		if most.IntVal <= 0 {
			return field.ErrorList{field.Invalid(path, most.IntVal, "must be 1 or more, or a percentage from 1% to "+
				"100%; set updateStrategy.opportunistic to restart nothing")}
		}
		return nil
	}
	number, percent := strings.CutSuffix(most.StrVal, "%")
	if n, err := strconv.ParseUint(number, 10, 8); !percent || err != nil || n < 1 || n > 100 {
		return field.ErrorList{field.Invalid(path, most.StrVal,
			fmt.Sprintf("%q is neither a number nor a percentage from 1%% to 100%%", most.StrVal))}
	}
	return nil
}

func validateScaleIn(strategy *v1beta1.VirtualMachinePoolScaleInStrategy, path *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}
	var policy *v1beta1.VirtualMachinePoolSelectionPolicy
	if strategy.Proactive != nil {
		policy = strategy.Proactive.SelectionPolicy
	}
	return validateStrategy(pointers(*strategy), policy, path)
}

func validateUpdateStrategy(strategy *v1beta1.VirtualMachinePoolUpdateStrategy, path *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}
	var policy *v1beta1.VirtualMachinePoolSelectionPolicy
	if strategy.Proactive != nil {
		policy = strategy.Proactive.SelectionPolicy
	}
	return validateStrategy(pointers(*strategy), policy, path)
}

// validateStrategy checks a strategy of which set members are set, one of them proactive with that policy.
func validateStrategy(
	set int, policy *v1beta1.VirtualMachinePoolSelectionPolicy, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if set > 1 {
		errs = append(errs,
			field.Forbidden(path, "has several strategies; keep one of unmanaged, opportunistic and proactive"))
	}
	return append(errs, validateSelection(policy, path.Child("proactive", "selectionPolicy"))...)
}

func validateSelection(policy *v1beta1.VirtualMachinePoolSelectionPolicy, path *field.Path) field.ErrorList {
	if policy == nil || policy.Selectors == nil {
		return nil
	}
	selectors := path.Child("selectors")
	var errs field.ErrorList
	if policy.Selectors.LabelSelector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(policy.Selectors.LabelSelector,
			metavalidation.LabelSelectorValidationOptions{}, selectors.Child("labelSelector"))...)
	}
	if policy.Selectors.NodeSelectorRequirementMatcher == nil {
		return errs
	}
	for i, requirement := range *policy.Selectors.NodeSelectorRequirementMatcher {
		if _, err := NodeRequirement(requirement); err != nil {
			errs = append(errs, field.Invalid(selectors.Child("nodeSelectorRequirementMatcher").
				Index(i), requirement.Key, err.Error()))
		}
	}
	return errs
}

func validateAutohealing(healing *v1beta1.VirtualMachinePoolAutohealingStrategy, path *field.Path) field.ErrorList {
	if healing == nil {
		return nil
	}
	var errs field.ErrorList
	if n := healing.StartUpFailureThreshold; n != nil && *n == 0 {
		errs = append(errs,
			field.Invalid(path.Child("startUpFailureThreshold"), *n, "must be 1 or more; leave it out for 3"))
	}
	if d := healing.MinFailingToStartDuration; d != nil && d.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("minFailingToStartDuration"), d.Duration.String(),
			"must not be negative; leave it out for 5m"))
	}
	return errs
}

// NodeRequirement returns a requirement on a nodeSelector as one on labels.
func NodeRequirement(requirement corev1.NodeSelectorRequirement) (*kubelabels.Requirement, error) {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists:       selection.Exists,
		corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, corev1.NodeSelectorOpGt: selection.GreaterThan,
		corev1.NodeSelectorOpLt: selection.LessThan,
	}
	operator, ok := operators[requirement.Operator]
	if !ok {
		return nil,
			fmt.Errorf("operator %q is none of In, NotIn, Exists, DoesNotExist, Gt and Lt", requirement.Operator)
	}
	return kubelabels.NewRequirement(requirement.Key, operator, requirement.Values)
}
