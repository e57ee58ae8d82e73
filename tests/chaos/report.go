package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Outcome is what came of one kill.
type Outcome struct {
	Step
	// Killed says what was killed, with its process id.
	Killed string `json:"killed,omitempty"`
	// Recovery is the time from the kill, or from the end of the pause, until all was well again.
	Recovery time.Duration `json:"recovery"`
	Findings
	// Ended are guests that should have gone on and booted anew instead.
	Ended []string `json:"ended,omitempty"`
	// Stuck says what was not well when the time was over.
	Stuck string `json:"stuck,omitempty"`
}

// Failed says that something is wrong.
func (o Outcome) Failed() bool {
	return len(o.Lost) > 0 || len(o.Doubled) > 0 || len(o.Ended) > 0 || o.Stuck != ""
}

// Report is the outcome of a run.
type Report struct {
	Seed     uint64    `json:"seed"`
	Planned  int       `json:"planned"`
	Outcomes []Outcome `json:"outcomes"`
}

// WriteJSON writes the report; times are in nanoseconds.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// row is a line of the table.
type row struct {
	kills, lost, doubled, ended, stuck int
	recoveries                         []time.Duration
}

func (r *row) add(o Outcome) {
	r.kills++
	r.lost += len(o.Lost)
	r.doubled += len(o.Doubled)
	r.ended += len(o.Ended)
	if o.Stuck != "" {
		r.stuck++
		return
	}
	r.recoveries = append(r.recoveries, o.Recovery)
}

// String has the columns from KILLS on.
func (r *row) String() string {
	median, longest := "-", "-"
	if n := len(r.recoveries); n > 0 {
		slices.Sort(r.recoveries)
		median, longest = seconds(r.recoveries[(n-1)/2]), seconds(r.recoveries[n-1])
	}
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%d\t%d\t%d", r.kills, median, longest, r.lost, r.doubled, r.ended, r.stuck)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// WriteTable writes a line for each kind and phase that there was, and one for all; then what is wrong.
func (r Report) WriteTable(w io.Writer) error {
	type cell struct {
		kind  Kind
		phase Phase
	}
	var all row
	rows := map[cell]*row{}
	for _, o := range r.Outcomes {
		c := cell{o.Kind, o.Phase}
		if rows[c] == nil {
			rows[c] = &row{}
		}
		rows[c].add(o)
		all.add(o)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tPHASE\tKILLS\tMEDIAN\tLONGEST\tLOST\tDOUBLED\tENDED\tSTUCK")
	for _, kind := range Kinds {
		for _, phase := range Phases {
			if row := rows[cell{kind, phase}]; row != nil {
				fmt.Fprintf(table, "%s\t%s\t%s\n", kind, phase, row)
			}
		}
	}
	fmt.Fprintf(table, "all\t\t%s\n", &all)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "seed %d, %d of %d kills\n", r.Seed, len(r.Outcomes), r.Planned)
	for i, o := range r.Outcomes {
		if !o.Failed() {
			continue
		}
		fmt.Fprintf(w, "\n%d: %s, %s (%s)\n", i+1, o.Kind, o.Phase, o.Killed)
		list(w, "lost", o.Lost)
		list(w, "doubled", o.Doubled)
		list(w, "ended", o.Ended)
		if o.Stuck != "" {
			list(w, "stuck", []string{o.Stuck})
		}
	}
	return nil
}

// list writes findings, of which there may be thousands.
func list(w io.Writer, what string, findings []string) {
	const most = 5
	for i, finding := range findings {
		if i == most {
			fmt.Fprintf(w, "  %s: %d more\n", what, len(findings)-most)
			return
		}
		fmt.Fprintf(w, "  %s: %s\n", what, finding)
	}
}

// Failed says that something is wrong somewhere.
func (r Report) Failed() bool { return slices.ContainsFunc(r.Outcomes, Outcome.Failed) }
