package report

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Verdict says how a row has changed.
type Verdict string

// Verdicts. Same is a change within the noise.
const (
	Worse  Verdict = "worse"
	Better Verdict = "better"
	Same   Verdict = "same"
)

// Change is a row in two runs.
type Change struct {
	What string
	// Old and New are the ratios to the anchor, or the values where there is none. Beside says which.
	Old, New float64
	Beside   bool
	Unit     string
	// Factor is how much worse it has become: 1 is as before, 2 twice as bad.
	Factor float64
	// Noise is how far apart, as a part of the value, medians of runs like these lie without a cause.
	Noise   float64
	Verdict Verdict
}

const (
	// leastNoise is the change that is never worth a word, and unknownNoise that of a row that was measured once.
	leastNoise, unknownNoise = .05, .15
)

// Compare returns the changes of all rows that two runs have.
func Compare(before, after *Report) []Change {
	rows := map[string]Row{}
	for _, row := range before.Rows {
		rows[row.Name] = row
	}
	var changes []Change
	for _, now := range after.Rows {
		old, ok := rows[now.Name]
		if !ok || old.score() <= 0 || now.score() <= 0 {
			continue
		}
		c := Change{
			What: now.What, Old: old.score(), New: now.score(), Beside: now.Ratio > 0, Unit: now.Unit,
			Noise:   max(leastNoise, math.Hypot(old.noise(), now.noise())),
			Verdict: Same,
		}
		c.Factor = c.New / c.Old
		if now.Higher {
			c.Factor = 1 / c.Factor
		}
		switch {
		case c.Factor > 1+c.Noise:
			c.Verdict = Worse
		case 1/c.Factor > 1+c.Noise:
			c.Verdict = Better
		}
		changes = append(changes, c)
	}
	return changes
}

// score is what counts of a row: the median of the paired rounds' ratios where there are such, else the ratio, else the
// value.
func (r Row) score() float64 {
	switch paired := r.paired(); {
	case len(paired) > 0 && r.isMedian():
		return Percentile(paired, .5)
	case r.Ratio > 0:
		return r.Ratio
	default:
		return r.Value
	}
}

// isMedian reports whether the row is of a median, and not of the slowest.
func (r Row) isMedian() bool { return r.Value == Percentile(r.Samples, .5) }

// paired are the ratios of samples and anchors that were measured in turns.
func (r Row) paired() []float64 {
	if len(r.Samples) != len(r.AnchorSamples) {
		return nil
	}
	out := make([]float64, len(r.Samples))
	for i := range out {
		out[i] = r.Samples[i] / r.AnchorSamples[i]
	}
	return out
}

// noise is how far the score of another run like this may lie from it, as a part of it, by chance: the half-width of a
// box plot's notch, 1.57 interquartile ranges over the root of the number of samples (McGill, Tukey and Larsen 1978).
func (r Row) noise() float64 {
	samples := r.paired()
	if len(samples) == 0 {
		samples = r.Samples
	}
	const few = 3
	if len(samples) < few {
		return unknownNoise
	}
	spread := Percentile(samples, .75) - Percentile(samples, .25)
	return 1.57 * spread / math.Sqrt(float64(len(samples))) / Percentile(samples, .5)
}

// Changes writes what has changed, and reports whether something has become worse.
func Changes(out io.Writer, changes []Change) (worse bool, err error) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEASURE\tOLD\tNEW\tCHANGE\tNOISE\tVERDICT")
	for _, c := range changes {
		unit := " " + c.Unit
		if c.Beside {
			unit = "×"
		}
		fmt.Fprintf(w, "%s\t%s%s\t%s%s\t%+.0f%%\t±%.0f%%\t%s\n", c.What, number(c.Old), unit, number(c.New), unit,
			100*(c.New/c.Old-1), 100*c.Noise, c.Verdict)
		worse = worse || c.Verdict == Worse
	}
	return worse, w.Flush()
}
