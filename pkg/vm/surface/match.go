package surface

import (
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
)

// MatchPolicy returns the policy that holds for a VMI in a namespace with the labels given; nil when none does. The
// rule is KubeVirt's: both selectors of a policy must match; the one with the most labels counts, of those with as
// many the one with more of the VMI's, and of these the first by name.
func MatchPolicy(policies []v1alpha1.MigrationPolicy, vmi, namespace map[string]string) *v1alpha1.MigrationPolicy {
	var best *v1alpha1.MigrationPolicy
	for i := range policies {
		p := &policies[i]
		s := p.Spec.Selectors
		if p.DeletionTimestamp != nil || s == nil || !hasAll(s.NamespaceSelector, namespace) ||
			!hasAll(s.VirtualMachineInstanceSelector, vmi) {
			continue
		}
		if best == nil || moreSpecific(p, best) {
			best = p
		}
	}
	return best
}

// moreSpecific reports whether a goes before b, both of which match.
func moreSpecific(a, b *v1alpha1.MigrationPolicy) bool {
	count := func(p *v1alpha1.MigrationPolicy) (all, vmi int) {
		s := p.Spec.Selectors
		return len(s.NamespaceSelector) + len(s.VirtualMachineInstanceSelector), len(s.VirtualMachineInstanceSelector)
	}
	allA, vmiA := count(a)
	allB, vmiB := count(b)
	switch {
	case allA != allB:
		return allA > allB
	case vmiA != vmiB:
		return vmiA > vmiB
	}
	return strings.Compare(a.Name, b.Name) < 0
}

// hasAll reports whether labels have all that a selector asks for.
func hasAll(selector v1alpha1.LabelSelector, labels map[string]string) bool {
	for key, want := range selector {
		if value, ok := labels[key]; !ok || value != want {
			return false
		}
	}
	return true
}

// Configured returns how a guest moves under a policy, nil for none: by the policy, else by the cluster's
// configuration, which has no nil.
func Configured(cluster v1.MigrationConfiguration, policy *v1alpha1.MigrationPolicy) *v1.MigrationConfiguration {
	out := cluster.DeepCopy()
	if policy == nil {
		return out
	}
	spec := policy.Spec.DeepCopy()
	overwrite(&out.AllowAutoConverge, spec.AllowAutoConverge)
	overwrite(&out.BandwidthPerMigration, spec.BandwidthPerMigration)
	overwrite(&out.CompletionTimeoutPerGiB, spec.CompletionTimeoutPerGiB)
	overwrite(&out.AllowPostCopy, spec.AllowPostCopy)
	overwrite(&out.AllowWorkloadDisruption, spec.AllowPostCopy) // unless said otherwise
	overwrite(&out.AllowWorkloadDisruption, spec.AllowWorkloadDisruption)
	return out
}

func overwrite[T any](target **T, value *T) {
	if value != nil {
		*target = new(*value)
	}
}
