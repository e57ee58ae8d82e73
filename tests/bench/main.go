// Command bench measures what has goals for speed and memory, on an instance of virt-local of its own, and prints each
// row beside its anchor from the same run: a plain Pod, a reboot of the same guest, the bare socket. Absolute times say
// little on a shared machine, so the ratio is what counts.
//
//	go run ./tests/bench            a table
//	go run ./tests/bench -o json    the same for programs
//	go run ./tests/bench -rows create-running,delete
//
// Rows are measured one after the other, alternating with their anchor, so that drift hits both.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/virtkit/virtkit/tests/instance"
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
}

// ratio fills in the ratio and compares it with its limit.
func (r Row) ratio(limit float64) Row {
	r.Ratio = r.Value / r.Anchor
	r.Reached = r.Ratio <= limit
	r.Goal = fmt.Sprintf("≤ %.3g×", limit)
	return r
}

// limit compares the value itself.
func (r Row) limit(most float64) Row {
	r.Reached = r.Value <= most
	r.Goal = fmt.Sprintf("≤ %g %s", most, r.Unit)
	return r
}

// measurement makes one or more rows.
type measurement struct {
	name string
	run  func(context.Context, *bench) ([]Row, error)
}

// bench is the instance under measurement.
type bench struct {
	*instance.Instance
	namespace string
	rounds    int
	verbose   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	all := []measurement{
		{"install", install},
		{"idle", idle},
		{"create-running", createRunning},
		{"ten-at-once", tenAtOnce},
		{"create-login", createLogin},
		{"delete", deletion},
		{"api-writes", apiWrites},
		{"memory", memory},
		{"console-echo", consoleEcho},
		{"port-forward", portForward},
		{"scrape", scrapes},
		{"migration", migration},
		{"snapshot", snapshots},
		{"clone", clones},
		{"virtctl-version", virtctlVersion},
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	format := flags.String("o", "table", "output: table or json")
	only := flags.String("rows", "", "measure only these, by name, separated by commas")
	rounds := flags.Int("rounds", 10, "samples a row")
	cluster := flags.String("cluster", "", "measure on this cluster, which has virtkit, instead of one of its own")
	verbose := flags.Bool("v", false, "say on standard error what the counted writes were")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *format != "table" && *format != "json" {
		return fmt.Errorf("-o %s: use table or json", *format)
	}
	chosen := all
	if *only != "" {
		chosen = nil
		for name := range strings.SplitSeq(*only, ",") {
			i := slices.IndexFunc(all, func(m measurement) bool { return m.name == name })
			if i < 0 {
				return fmt.Errorf("-rows %s: there is no such row; there are %s", name, rowNames(all))
			}
			chosen = append(chosen, all[i])
		}
	}
	i, err := start(ctx, *cluster, chosen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.Down()) }()
	b := &bench{Instance: i, rounds: *rounds, verbose: *verbose}
	if *cluster != "" {
		defer b.leave(&err)
	}
	if *cluster == "" && chosen[0].name != "install" {
		if err := i.Install(ctx); err != nil {
			return err
		}
	}
	var rows []Row
	for _, m := range chosen {
		fmt.Fprintln(os.Stderr, "measuring", m.name)
		if m.name != "install" && b.namespace == "" {
			if err := b.warmUp(ctx); err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
		}
		measured, err := m.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		rows = append(rows, measured...)
	}
	return show(out, *format, rows)
}

// start makes a cluster to measure on, or takes one that is up: two that differ in what is measured can be compared in
// turns.
func start(ctx context.Context, cluster string, chosen []measurement) (*instance.Instance, error) {
	if cluster == "" {
		return instance.Start(ctx, "bench")
	}
	if chosen[0].name == "install" {
		return nil, errors.New("-cluster: the row install needs a cluster of its own; leave it out with -rows")
	}
	return instance.Attach(cluster)
}

func rowNames(all []measurement) string {
	var s []string
	for _, m := range all {
		s = append(s, m.name)
	}
	return strings.Join(s, ", ")
}

func show(out io.Writer, format string, rows []Row) error {
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Kind string    `json:"kind"`
			At   time.Time `json:"at"`
			Rows []Row     `json:"rows"`
		}{"BenchmarkReport", time.Now().UTC(), rows})
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEASURE\tVALUE\tANCHOR\tRATIO\tGOAL\tREACHED")
	for _, r := range rows {
		anchor, ratio := "-", "-"
		if r.Anchor > 0 {
			anchor = fmt.Sprintf("%.3g %s (%s)", r.Anchor, r.Unit, r.Versus)
		}
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f×", r.Ratio)
		}
		goal, reached := r.Goal, "no"
		switch {
		case goal == "":
			goal, reached = "-", "-"
		case r.Reached:
			reached = "yes"
		}
		fmt.Fprintf(w, "%s\t%.3g %s\t%s\t%s\t%s\t%s\n", r.What, r.Value, r.Unit, anchor, ratio, goal, reached)
	}
	return w.Flush()
}
