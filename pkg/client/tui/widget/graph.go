package widget

import (
	"math"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// Graph draws values as columns, the newest at the right, in so many lines of so many cells; full is the value of a
// full column. A value that is no number is a gap: the theme's glyph, in the last line.
func Graph(t *theme.Theme, values []float64, full float64, width, height int) []string {
	if len(values) > width {
		values = values[len(values)-width:]
	}
	steps := len(t.Bars) - 1
	lines := make([]string, height)
	for row := range lines {
		below := (height - 1 - row) * steps // steps that are drawn in the lines under this one
		var b strings.Builder
		b.WriteString(strings.Repeat(" ", width-len(values)))
		for _, v := range values {
			if math.IsNaN(v) {
				b.WriteString(gapAt(t, below))
				continue
			}
			level := 0
			if full > 0 {
				level = min(height*steps, int(v/full*float64(height*steps)+0.5))
			}
			if v > 0 {
				level = max(1, level)
			}
			b.WriteString(t.Bars[max(0, min(steps, level-below))])
		}
		lines[row] = b.String()
	}
	return lines
}

// gapAt returns the gap in a line with so many steps under it.
func gapAt(t *theme.Theme, below int) string {
	if below > 0 {
		return " "
	}
	return t.Gap
}
