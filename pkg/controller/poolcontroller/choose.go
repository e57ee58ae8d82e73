package poolcontroller

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

func scaleInPolicy(p *v1beta1.VirtualMachinePool) *v1beta1.VirtualMachinePoolSelectionPolicy {
	if strategy := p.Spec.ScaleInStrategy; strategy != nil && strategy.Proactive != nil {
		return strategy.Proactive.SelectionPolicy
	}
	return nil
}

func updatePolicy(p *v1beta1.VirtualMachinePool) *v1beta1.VirtualMachinePoolSelectionPolicy {
	if strategy := p.Spec.UpdateStrategy; strategy != nil && strategy.Proactive != nil {
		return strategy.Proactive.SelectionPolicy
	}
	return nil
}

// choose returns the VMs that a policy's selectors leave, in the order of the policy. A nil policy leaves all, in any
// order.
func choose(view View, machines []Machine, policy *v1beta1.VirtualMachinePoolSelectionPolicy) []Machine {
	out, sort := slices.Clone(machines), v1beta1.VirtualMachinePoolSortPolicyRandom
	// From one order, so that what is chosen depends on the policy alone.
	slices.SortFunc(out, byOrdinal)
	if policy != nil {
		if policy.Selectors != nil {
			out = slices.DeleteFunc(out, func(m Machine) bool { return !selected(m, policy.Selectors) })
		}
		if policy.SortPolicy != nil {
			sort = *policy.SortPolicy
		}
	}
	switch sort {
	case v1beta1.VirtualMachinePoolSortPolicyAscendingOrder:
	case v1beta1.VirtualMachinePoolSortPolicyDescendingOrder:
		slices.Reverse(out)
	case v1beta1.VirtualMachinePoolSortPolicyOldest:
		slices.SortStableFunc(out, byAge)
	case v1beta1.VirtualMachinePoolSortPolicyNewest:
		slices.SortStableFunc(out, func(a, b Machine) int { return byAge(b, a) })
	default:
		view.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

func byOrdinal(a, b Machine) int {
	return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.VM.Name, b.VM.Name))
}

func byAge(a, b Machine) int { return a.VM.CreationTimestamp.Compare(b.VM.CreationTimestamp.Time) }

// selected reports whether all selectors match: that of labels the VM's and its template's, that of nodes the
// nodeSelector of the template, as KubeVirt has it.
func selected(m Machine, selectors *v1beta1.VirtualMachinePoolSelectors) bool {
	template := m.VM.Spec.Template
	if selectors.LabelSelector != nil {
		all := map[string]string{}
		if template != nil {
			maps.Copy(all, template.ObjectMeta.Labels)
		}
		maps.Copy(all, m.VM.Labels)
		selector, err := metav1.LabelSelectorAsSelector(selectors.LabelSelector)
		if err != nil || !selector.Matches(labels.Set(all)) {
			return false
		}
	}
	if selectors.NodeSelectorRequirementMatcher == nil {
		return true
	}
	var nodes labels.Set
	if template != nil {
		nodes = template.Spec.NodeSelector
	}
	return !slices.ContainsFunc(*selectors.NodeSelectorRequirementMatcher, func(r corev1.NodeSelectorRequirement) bool {
		requirement, err := surface.NodeRequirement(r)
		return err != nil || !requirement.Matches(nodes)
	})
}
