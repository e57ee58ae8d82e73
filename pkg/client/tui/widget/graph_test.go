package widget

import (
	"math"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

func TestGraph(t *testing.T) {
	look := theme.New(theme.Options{})
	for name, c := range map[string]struct {
		values []float64
		full   float64
		want   string
	}{
		"nothing":         {nil, 1, "    |    "},
		"steps":           {[]float64{0, 1, 8, 16}, 16, "   █| ▁██"},
		"half of a step":  {[]float64{12}, 16, "   ▄|   █"},
		"a little shows":  {[]float64{0.001}, 16, "    |   ▁"},
		"more than full":  {[]float64{99}, 16, "   █|   █"},
		"no scale":        {[]float64{1, 0}, 0, "    |  ▁ "},
		"a gap":           {[]float64{16, math.NaN(), math.NaN(), 16}, 16, "█  █|█··█"},
		"the newest only": {[]float64{16, 16, 16, 16, 0, 0, 0, 0}, 16, "    |    "},
	} {
		if got := strings.Join(Graph(look, c.values, c.full, 4, 2), "|"); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}
