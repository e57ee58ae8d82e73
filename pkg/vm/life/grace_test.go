package life

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

func TestGrace(t *testing.T) {
	for name, test := range map[string]struct {
		seconds *int64
		want    time.Duration
	}{
		"none set": {nil, 30 * time.Second},
		"at once":  {new(int64(0)), 0},
		"an hour":  {new(int64(3600)), time.Hour},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.TerminationGracePeriodSeconds = test.seconds
		if got := Grace(vmi); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
