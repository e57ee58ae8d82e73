// Package report is what the bench says: rows with their goals, as a table, JSON or Markdown, and what has changed
// between two runs. It measures nothing.
package report

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Row is one measured line.
type Row struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
	Anchor  float64 `json:"anchor,omitempty"` // 0: the goal is absolute
	Versus  string  `json:"versus,omitempty"` // what the anchor is
	Ratio   float64 `json:"ratio,omitempty"`  // value / anchor
	Goal    string  `json:"goal,omitempty"`   // empty: said for the understanding of another row
	Reached bool    `json:"reached"`
	// Higher says that more is better.
	Higher bool `json:"higher,omitempty"`
	// Samples and AnchorSamples are what Value and Anchor were taken from, in the order in which they were measured;
	// none where it was measured once. Where both have as many they were measured in turns.
	Samples       []float64 `json:"samples,omitempty"`
	AnchorSamples []float64 `json:"anchorSamples,omitempty"`
}

// Timed returns a row of times, of which the percentile p counts, in the unit s or ms.
func Timed(name, what, unit string, samples []time.Duration, p float64) Row {
	r := Row{Name: name, What: what, Unit: unit, Samples: in(unit, samples)}
	r.Value = Percentile(r.Samples, p)
	return r
}

// Beside adds an anchor that was measured in the same run.
func (r Row) Beside(versus string, samples []time.Duration, p float64) Row {
	r.Versus, r.AnchorSamples = versus, in(r.Unit, samples)
	r.Anchor = Percentile(r.AnchorSamples, p)
	r.Ratio = r.Value / r.Anchor
	return r
}

// Times sets the goal that the value is at most so many times the anchor.
func (r Row) Times(most float64) Row {
	r.Goal, r.Reached = fmt.Sprintf("≤ %.3g×", most), r.Ratio <= most
	return r
}

// Beyond sets the goal that the value is at most so much more than the anchor.
func (r Row) Beyond(most float64) Row {
	r.Goal, r.Reached = fmt.Sprintf("≤ anchor + %g %s", most, r.Unit), r.Value <= r.Anchor+most
	return r
}

// AtMost sets the goal that the value is at most so much.
func (r Row) AtMost(most float64) Row {
	r.Goal, r.Reached = fmt.Sprintf("≤ %g %s", most, r.Unit), r.Value <= most
	return r
}

// AtLeast sets the goal that the value, of which more is better, is at least so many times the anchor.
func (r Row) AtLeast(least float64) Row {
	r.Goal, r.Reached, r.Higher = fmt.Sprintf("≥ %.3g×", least), r.Ratio >= least, true
	return r
}

// Percentile returns the sample at p, from 0 to 1, of which the nearest rank counts; NaN of none.
func Percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(int(math.Ceil(p*float64(len(sorted))))-1, 0)]
}

func in(unit string, samples []time.Duration) []float64 {
	scale := 1.0
	if unit == "ms" {
		scale = 1000
	}
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = s.Seconds() * scale
	}
	return out
}
