package vmistatus

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestClockObstacles(t *testing.T) {
	invtsc := &v1.VirtualMachineInstance{}
	invtsc.Spec.Domain.CPU = &v1.CPU{Features: []v1.CPUFeature{{Name: "aes"}, {Name: "invtsc"}}}
	notified := &v1.VirtualMachineInstance{}
	notified.Spec.Domain.Features = &v1.Features{Hyperv: &v1.FeatureHyperv{Reenlightenment: &v1.FeatureState{}}}
	given := invtsc.DeepCopy()
	given.Status.TopologyHints = &v1.TopologyHints{TSCFrequency: new(int64(2_000_000_000))}
	for name, c := range map[string]struct {
		vmi      *v1.VirtualMachineInstance
		emulated bool
		tied     bool
	}{
		"neither":                   {&v1.VirtualMachineInstance{}, false, false},
		"invariant":                 {invtsc, false, true},
		"notified of changes":       {notified, false, true},
		"frequency is known":        {given, false, false},
		"emulated, so not notified": {notified, true, false},
	} {
		found := clockObstacles(c.vmi, c.emulated)
		if len(found) > 0 != c.tied ||
			c.tied && found[0].reason != v1.VirtualMachineInstanceReasonNoTSCFrequencyMigratable {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
