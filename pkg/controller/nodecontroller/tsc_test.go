package nodecontroller

import (
	"maps"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestFrequencies(t *testing.T) {
	const ours = names.LabelTSCScheduling
	labels := func(frequency, scalable string, more ...string) map[string]string {
		out := map[string]string{v1.NodeSchedulable: "true"}
		if frequency != "" {
			out[names.LabelTSCFrequency], out[names.LabelTSCScalable] = frequency, scalable
		}
		for _, key := range more {
			out[ours+key] = "true"
		}
		return out
	}
	used := []int64{1000000000, 2000000001, 3000000000}
	for name, c := range map[string]struct {
		labels map[string]string
		used   []int64
		want   map[string]bool
	}{
		"nothing known": {labels("", ""), used, nil},
		"known no more": {labels("", "", "2000000000"), used, map[string]bool{ours + "2000000000": false}},
		"its own":       {labels("2000000000", "false"), nil, map[string]bool{ours + "2000000000": true}},
		"nearly its own": {
			labels("2000000000", "false", "2000000000"), used, map[string]bool{ours + "2000000001": true},
		},
		"scalable": {
			labels("2000000000", "true"), used,
			map[string]bool{ours + "2000000000": true, ours + "1000000000": true, ours + "2000000001": true},
		},
		"as it is": {labels("2000000000", "true", "2000000000", "1000000000", "2000000001"), used, nil},
		"used no more": {
			labels("2000000000", "true", "2000000000", "1500000000"), nil, map[string]bool{ours + "1500000000": false},
		},
	} {
		if got := frequencies(c.labels, c.used); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
