// Command bench measures what has goals for speed and memory, on an instance of virt-local of its own, and prints each
// row beside its anchor from the same run: a plain Pod, a reboot of the same guest, the bare socket. Absolute times say
// little on a shared machine, so the ratio is what counts.
//
//	go run ./tests/bench            a table
//	go run ./tests/bench -o json    the same for programs
//	go run ./tests/bench -rows create-running,delete
//	go run ./tests/bench -compare old.json new.json
//
// Rows are measured one after the other, alternating with their anchor, so that drift hits both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/bench/report"
	"github.com/virtkit/virtkit/tests/instance"
)

// Row is one measured line.
type Row = report.Row

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
		{"create-image", createImage},
		{"delete", deletion},
		{"api-writes", apiWrites},
		{"memory", memory},
		{"console-echo", consoleEcho},
		{"port-forward", portForward},
		{"network", networks},
		{"policies", policies},
		{"transfers", transfers},
		{"sparse", sparseTransfers},
		{"scrape", scrapes},
		{"migration", migration},
		{"families", families},
		{"disk-migration", diskMigration},
		{"limits", limits},
		{"grow", growing},
		{"snapshot", snapshots},
		{"clone", clones},
		{"virtctl-version", virtctlVersion},
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	format := flags.String("o", "table", "output: table, json or markdown")
	only := flags.String("rows", "", "measure only these, by name, separated by commas")
	rounds := flags.Int("rounds", 10, "samples a row")
	cluster := flags.String("cluster", "", "measure on this cluster, which has virtkit, instead of one of its own")
	compare := flags.String(
		"compare",
		"",
		"measure nothing, but say what has changed from this report (-o json) to the one that "+
			"follows; exit 1 when something got worse beyond the noise",
	)
	page := flags.String("page", "", "write the results into this page, too, in place of those that it has")
	verbose := flags.Bool("v", false, "say on standard error what the counted writes were")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *compare != "" {
		if flags.NArg() != 1 {
			return errors.New("-compare OLD.json NEW.json: name two reports")
		}
		return comparison(out, *compare, flags.Arg(0))
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: there are no arguments besides flags", flags.Arg(0))
	}
	write, ok := map[string]func(*report.Report, io.Writer) error{
		"table": (*report.Report).Table, "json": (*report.Report).JSON, "markdown": (*report.Report).Markdown,
	}[*format]
	if !ok {
		return fmt.Errorf("-o %s: use table, json or markdown", *format)
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
	var failures error
	for _, m := range chosen {
		fmt.Fprintln(os.Stderr, "measuring", m.name)
		if m.name != "install" && b.namespace == "" {
			if err := b.warmUp(ctx); err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
		}
		measured, err := m.run(ctx, b)
		if err != nil {
			failures = errors.Join(failures, fmt.Errorf("%s: %w", m.name, err))
		}
		if ctx.Err() != nil {
			return failures
		}
		rows = append(rows, measured...)
	}
	result, err := describe(ctx, b, rows)
	if err != nil {
		return err
	}
	if *page != "" && failures == nil { // a page has all rows, or keeps those that it has
		failures = rewrite(*page, result)
	}
	return errors.Join(failures, write(result, out))
}

// describe says what was measured, and on what.
func describe(ctx context.Context, b *bench, rows []Row) (*report.Report, error) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return nil, fmt.Errorf("which commit this is: %w", err)
	}
	machine, err := thisMachine(ctx, b)
	return &report.Report{
		Kind: report.Kind, At: time.Now().UTC(), Commit: strings.TrimSpace(string(commit)), Machine: machine,
		Rounds: b.rounds, Rows: rows,
	}, err
}

// kvm is the device that nodes have where guests are not emulated.
const kvm = corev1.ResourceName(names.ResourceKVM)

// thisMachine says what counts of the machine, and nothing that tells it from others like it.
func thisMachine(ctx context.Context, b *bench) (string, error) {
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return "", err
	}
	nodes, err := b.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	guests := "emulated guests"
	if slices.ContainsFunc(
		nodes.Items,
		func(n corev1.Node) bool { return !n.Status.Allocatable.Name(kvm, "").IsZero() },
	) {
		guests = "guests under KVM"
	}
	return fmt.Sprintf(
		"%d cores, %d GiB, %s",
		runtime.NumCPU(),
		(memory.Totalram*uint64(memory.Unit)+1<<29)>>30,
		guests,
	), nil
}

// rewrite puts a report into a page.
func rewrite(path string, r *report.Report) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page, err := r.Into(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(page), 0o644) //nolint:gosec // a page of the documentation
}

// errWorse is a run that is worse than another.
var errWorse = errors.New("something has become worse")

func comparison(out io.Writer, before, after string) error {
	var reports [2]*report.Report
	for i, path := range []string{before, after} {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		reports[i], err = report.Read(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	worse, err := report.Changes(out, report.Compare(reports[0], reports[1]))
	if err == nil && worse {
		err = errWorse
	}
	return err
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
