package page

import (
	"strings"
	"testing"

	poolv1beta1 "kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// What the page says of a pool that has too many VMs is what its controller does (pools.KeepsExcess).
func TestExcess(t *testing.T) {
	opportunistic := &poolv1beta1.VirtualMachinePoolScaleInStrategy{
		Opportunistic: &poolv1beta1.VirtualMachinePoolOpportunisticScaleInStrategy{},
	}
	for name, c := range map[string]struct {
		strategy        *poolv1beta1.VirtualMachinePoolScaleInStrategy
		short, question string
	}{
		"proactive": {nil, "2 to go", "2 machines would go."},
		"opportunistic": {
			opportunistic, "2 too many, which opportunistic scale-in keeps", "it deletes no VM; delete those",
		},
	} {
		pool := &poolv1beta1.VirtualMachinePool{}
		pool.Namespace, pool.Name, pool.Spec.ScaleInStrategy = "ns", "web", c.strategy
		replicas := int32(2)
		pool.Spec.Replicas, pool.Status.Replicas = &replicas, 4
		s := store.OfPool(pool)
		if got := shortOf(s, nil); got != c.short {
			t.Errorf("%s: %q", name, got)
		}
		ask, ok := group{&World{Program: "virtctl"}, s}.scale(2)().(Ask)
		if !ok || !strings.Contains(ask.Question, c.question) {
			t.Errorf("%s: %q", name, ask.Question)
		}
	}
}
