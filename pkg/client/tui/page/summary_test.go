package page

import (
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// The line of the cluster says what the sums of use are without.
func TestSummaryWithout(t *testing.T) {
	at := time.Unix(1000, 0)
	for want, last := range map[string]stats.List{
		"CPU 1.0":              {},
		"CPU 1.0 without 1 VM": {Unanswered: []stats.Unanswered{{Name: "late"}}},
		"CPU 1.0 without 2 VMs, 1 node": {
			Unanswered:  []stats.Unanswered{{Name: "late"}, {Name: "slow"}},
			Unreachable: []stats.Unreachable{{Node: "n"}},
		},
	} {
		w := &World{
			Machines: store.NewMachines(func() {}), Nodes: store.NewTable[store.Node](func() {}), Usage: NewUsage(),
		}
		w.Machines.Load(nil, nil)
		w.Usage.Take(stats.List{Items: []stats.Guest{{Name: "a", Time: at}}}, at)
		last.Items = []stats.Guest{{Name: "a", Time: at.Add(time.Second), CPUTime: 1e9}}
		w.Usage.Take(last, at.Add(time.Second))
		s := Summarize(w)
		got := ""
		for _, parts := range s.Parts(theme.New(theme.Options{})) {
			text := ""
			for _, p := range parts {
				text += p.Text
			}
			if strings.HasPrefix(text, "CPU") {
				got = text
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
