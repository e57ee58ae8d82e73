package migrations

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// NeedsTSC returns what makes a guest rely on a time stamp counter that ticks as often wherever the guest moves: a CPU
// with one that never changes (invtsc), or Hyper-V's reenlightenment, whose notice of a change does not come to pass
// then. ok is false for a guest that relies on none. The cause is an Obstacle, whose Text has no end yet. An emulated
// guest has no such counter, whatever its spec says.
//
// virt-controller gives a guest that needs it a frequency and nodes that have it; virt-handler says that one without a
// frequency cannot move.
func NeedsTSC(spec *v1.DomainSpec) (cause Obstacle, ok bool) {
	if spec.CPU != nil && slices.ContainsFunc(spec.CPU.Features, invariantTSC) {
		return Obstacle{Kind: Feature, Object: "invtsc", Text: "of spec.domain.cpu "}, true
	}
	if spec.Features == nil || spec.Features.Hyperv == nil {
		return Obstacle{}, false
	}
	if state := spec.Features.Hyperv.Reenlightenment; state != nil && (state.Enabled == nil || *state.Enabled) {
		return Obstacle{Kind: Field, Object: "domain.features.hyperv.reenlightenment"}, true
	}
	return Obstacle{}, false
}

// invariantTSC reports a CPU feature that is a counter which never changes, unless the policy is to have none.
func invariantTSC(feature v1.CPUFeature) bool {
	return feature.Name == "invtsc" && slices.Contains([]string{"", "require", "force"}, feature.Policy)
}
