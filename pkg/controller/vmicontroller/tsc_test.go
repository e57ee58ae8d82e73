package vmicontroller

import (
	"testing"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
)

const ghz = 1_000_000_000

func TestTSCShows(t *testing.T) {
	fixed, scalable := TSC{Frequency: 2 * ghz}, TSC{Frequency: 2 * ghz, Scalable: true}
	for _, c := range []struct {
		tsc       TSC
		frequency int64
		want      bool
	}{
		{fixed, 2 * ghz, true},
		{fixed, 2*ghz + 500_000, true},
		{fixed, 2*ghz - 500_000, true},
		{fixed, 2*ghz + 500_001, false},
		{fixed, 1 * ghz, false},
		{scalable, 1 * ghz, true},
		{scalable, 2*ghz + 500_000, true},
		{scalable, 3 * ghz, false},
		{TSC{}, 2 * ghz, false},
	} {
		if got := c.tsc.Shows(c.frequency); got != c.want {
			t.Errorf("%+v shows %d: %v", c.tsc, c.frequency, got)
		}
	}
}

func TestTSCOf(t *testing.T) {
	if got := TSCOf(map[string]string{
		names.LabelTSCFrequency: "2000000000",
		names.LabelTSCScalable:  "true",
	}); got != (TSC{2 * ghz, true}) {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"", "-1", "fast"} {
		if got := TSCOf(map[string]string{names.LabelTSCFrequency: text}); got != (TSC{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestPickTSC(t *testing.T) {
	node := func(frequency int64) TSC { return TSC{Frequency: frequency} }
	for name, c := range map[string]struct {
		lowest int64
		nodes  []TSC
		used   []int64
		want   int64
	}{
		"nothing known": {0, []TSC{{}, {}}, nil, 0},
		"the lowest":    {0, []TSC{{}, node(3 * ghz), node(2 * ghz)}, nil, 2 * ghz},
		"as configured": {ghz, []TSC{node(2 * ghz)}, nil, ghz},
		"what a guest has": {
			0, []TSC{node(2 * ghz), node(2*ghz + 9), node(2*ghz + 9)}, []int64{3 * ghz, 2*ghz + 5}, 2*ghz + 5,
		},
		"what several nodes have": {
			0, []TSC{node(2 * ghz), node(2*ghz + 9), node(2*ghz + 9), node(3 * ghz), node(3 * ghz)}, nil, 2*ghz + 9,
		},
		"no good any more": {0, []TSC{node(2 * ghz)}, []int64{3 * ghz}, 2 * ghz},
	} {
		if got := pickTSC(c.lowest, c.nodes, c.used); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestNeedsTSC(t *testing.T) {
	hardware := Facts{Config: config.Default(), KVM: true}
	hardware.Config.Architecture = "amd64"
	for overlay, want := range map[string]bool{
		``: false,
		`spec: {domain: {cpu: {features: [{name: invtsc}]}}}`:                                       true,
		`spec: {domain: {cpu: {features: [{name: invtsc, policy: disable}]}}}`:                      false,
		`spec: {domain: {features: {hyperv: {reenlightenment: {}}}}}`:                               true,
		`spec: {domain: {features: {hyperv: {reenlightenment: {enabled: false}}}}}`:                 false,
		`spec: {architecture: arm64, domain: {cpu: {features: [{name: invtsc, policy: require}]}}}`: false,
	} {
		if got := needsTSC(parseVMI(t, overlay), hardware); got != want {
			t.Errorf("%s: %v", overlay, got)
		}
		if needsTSC(parseVMI(t, overlay), Facts{Config: hardware.Config}) {
			t.Errorf("%s: an emulated guest has no such counter", overlay)
		}
	}
}

func TestGuestIsGivenTSC(t *testing.T) {
	vmi := parseVMI(t, `spec: {domain: {cpu: {features: [{name: invtsc}]}}}`)
	step := Next(View{VMI: vmi, TSC: 2 * ghz})
	if hints := step.Status.TopologyHints; step.CreatePod || hints == nil || *hints.TSCFrequency != 2*ghz {
		t.Errorf("at first: hints %+v, pod %v", hints, step.CreatePod)
	}
	vmi.Status = step.Status
	if step = Next(View{VMI: vmi}); !step.CreatePod {
		t.Error("no pod for a guest with a frequency")
	}
}
