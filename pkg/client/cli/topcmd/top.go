// Package topcmd is `virtctl top`.
package topcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/top"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/report/stats"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// Options of `virtctl top`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output

	Names         []string
	Selector      string
	AllNamespaces bool
	Watch         bool
	SortBy        string
	Interval      cli.Timeout
}

// NewCmdTop makes the command.
func NewCmdTop(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(), Interval: cli.Timeout{Duration: time.Second, Unit: time.Second}}
	cmd := &cobra.Command{
		Use:   "top [NAME...]",
		Short: "Show what running guests use: CPU, memory, network, disk",
		Long: `Show what running guests use, measured over --interval by the node's virt-handler.

CPU is in thousandths of a processor (1500m is one and a half), as QEMU uses them; VCPUS is how many the guest
has now. MEMORY is what the guest has, USED what it says it uses of that, RESIDENT what QEMU holds of the
node's. Network and disk are bytes a second, followed
by their limit where all of the guest's interfaces, or disks, have one (9.8Mi/10Mi). LIMITS, where a guest has
any, are those of each disk and interface, also of requests (iops). A guest that does not answer in time has a
row without numbers.`,
		Example: cli.Examples(f.Program, `
			virtctl top
			virtctl top -A --sort-by memory
			virtctl top demo --watch --interval 5s
			virtctl top -o json | jq '.items[] | select(.cpuMilli > 900).name'`),
		Args:              cli.Args(0, -1, "names of VMs"),
		ValidArgsFunction: completioncmd.VMIs(f, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Names = args
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "Show the guests of all namespaces")
	flags.StringVarP(&o.Selector, "selector", "l", "", "Label `SELECTOR` of instances, such as app=web")
	flags.BoolVarP(&o.Watch, "watch", "w", false, "Go on, every interval")
	flags.StringVar(&o.SortBy, "sort-by", "name", "Sort by `COLUMN`: "+strings.Join(top.Keys(), ", "))
	flags.Var(&o.Interval, "interval", "Time over which is measured")
	flags.BoolVar(&o.Output.NoHeaders, "no-headers", false, "Leave out the column titles")
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "sort-by", top.Keys()...)
	return cmd
}

func (o *Options) validate() error {
	switch {
	case !slices.Contains(top.Keys(), o.SortBy):
		return cli.UsageErrorf("--sort-by: %q is not one of %s", o.SortBy, strings.Join(top.Keys(), ", "))
	case o.Interval.Duration < 100*time.Millisecond:
		return cli.UsageErrorf("--interval: %s is too short to measure; use 100ms or more", o.Interval.Duration)
	case o.AllNamespaces && len(o.Names) > 0:
		return cli.UsageErrorf("names cannot be given with --all-namespaces")
	case o.Selector != "" && len(o.Names) > 0:
		return cli.UsageErrorf("names cannot be given with --selector")
	}
	if err := cli.CheckSelector(o.Selector); err != nil {
		return err
	}
	return o.Output.Validate()
}

// errDone ends the watch after one pair of readings.
var errDone = errors.New("done")

// Run measures and prints, once or until interrupted.
func Run(ctx context.Context, o *Options) error {
	namespace := ""
	if !o.AllNamespaces {
		var err error
		if namespace, err = o.Factory.Namespace(); err != nil {
			return err
		}
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	wanted, failures, err := o.wanted(ctx, c, namespace)
	if err != nil {
		return err
	}
	failed := utilerrors.NewAggregate(failures)
	switch {
	case failed != nil && len(wanted) == 0:
		return failed
	case failed != nil && o.Watch: // which ends with an interrupt
		for line := range strings.SplitSeq(cli.Explain(failed, o.Factory.Connection()), "\n") {
			fmt.Fprintf(o.Factory.IO.ErrOut, "warning: %s\n", line)
		}
	}
	again := 0
	show := func(r *top.Report) error {
		if wanted != nil {
			r.Fresh = slices.DeleteFunc(r.Fresh, func(key string) bool { return !wanted[key] })
			r.Items = slices.DeleteFunc(r.Items, func(row top.Row) bool { return !wanted[row.Namespace+"/"+row.Name] })
			r.Unanswered = slices.DeleteFunc(r.Unanswered, func(late stats.Unanswered) bool {
				return !wanted[late.Namespace+"/"+late.Name]
			})
		}
		if len(r.Items)+len(r.Unanswered) == 0 && len(r.Fresh) > 0 && again < maxAgain {
			again++ // they run, and what they use is known in a moment
			return nil
		}
		again = 0
		if err := r.Sort(o.SortBy); err != nil {
			return err
		}
		for _, node := range r.Unreachable {
			fmt.Fprintf(o.Factory.IO.ErrOut, "warning: the guests of node %s are missing: %s\n", node.Node, node.Error)
		}
		if err := o.print(r); err != nil {
			return err
		}
		if !o.Watch {
			return errDone
		}
		return nil
	}
	err = top.Watch(ctx, c, namespace, o.Interval.Duration, show, o.Watch)
	if errors.Is(err, errDone) {
		if failed != nil {
			return failed // a nil Aggregate is no nil error
		}
		return nil
	}
	return err
}

// wanted returns the guests to show, nil for all. A guest that is named must run; failures has an error for each that
// does not.
func (o *Options) wanted(
	ctx context.Context, c *client.Client, namespace string,
) (wanted map[string]bool, failures []error, err error) {
	switch {
	case len(o.Names) > 0:
		targets, err := cli.ParseTargets(o.Names, namespace)
		if err != nil {
			return nil, nil, err
		}
		out := map[string]bool{}
		for _, target := range targets {
			vmi, err := c.VMI(ctx, target.Namespace, target.Name)
			if err != nil {
				failures = append(failures, o.Factory.NotRunning(ctx, c, target, err))
				continue
			}
			out[vmi.Namespace+"/"+vmi.Name] = true
		}
		return out, failures, nil
	case o.Selector != "":
		list, err := c.VMIList(ctx, namespace, metav1.ListOptions{LabelSelector: o.Selector})
		if err != nil {
			return nil, nil, fmt.Errorf("list instances: %w", err)
		}
		out := map[string]bool{}
		for i := range list.Items {
			out[list.Items[i].Namespace+"/"+list.Items[i].Name] = true
		}
		return out, nil, nil
	}
	return nil, nil, nil
}

func (o *Options) print(r *top.Report) error {
	streams := o.Factory.IO
	if o.Output.Given() {
		o.Output.Anew() // the header says where an interval begins
		return o.Output.Print(r, streams.Out)
	}
	if len(r.Items)+len(r.Unanswered) == 0 {
		text := "No running guests found."
		if len(r.Fresh) > 0 {
			text = "What the running guests use is not known yet."
		}
		fmt.Fprintln(streams.ErrOut, text)
		return nil
	}
	if o.Watch && streams.OutIsTTY {
		if _, err := io.WriteString(streams.RawOut(), "\x1b[H\x1b[2J"); err != nil {
			return err
		}
	}
	return o.table(r)
}

// table prints the guests, those that did not answer last.
func (o *Options) table(r *top.Report) error {
	table := cli.NewTable(o.Factory.IO.Out)
	limited := slices.ContainsFunc(r.Items, func(row top.Row) bool { return len(row.Limits) > 0 })
	line := func(namespace, limits string, cells ...string) {
		if limited {
			cells = append(cells, cmp.Or(limits, "-"))
		}
		if o.AllNamespaces {
			cells = append([]string{namespace}, cells...)
		}
		table.Row(cells...)
	}
	if !o.Output.NoHeaders {
		line("NAMESPACE", "LIMITS", "NAME", "NODE", "CPU", "VCPUS", "MEMORY", "USED", "RESIDENT", "RECEIVED/s",
			"SENT/s", "READ/s", "WRITTEN/s")
	}
	for _, row := range r.Items {
		line(row.Namespace, strings.Join(row.Limits, "; "), row.Name, row.Node, fmt.Sprintf("%dm", row.CPU),
			fmt.Sprintf("%d", row.VCPUs), size(row.Memory), used(row.MemoryUsed), size(row.MemoryResident),
			rate(row.NetworkReceived, row.NetworkReceivedLimit), rate(row.NetworkSent, row.NetworkSentLimit),
			rate(row.DiskRead, row.DiskReadLimit), rate(row.DiskWritten, row.DiskWrittenLimit))
	}
	for _, late := range r.Unanswered {
		line(late.Namespace, unknown, append([]string{late.Name, late.Node}, slices.Repeat([]string{unknown}, 9)...)...)
	}
	return table.Flush()
}

// maxAgain bounds how many readings in a row may have nothing to compare guests with before that is printed.
const maxAgain = 5

// unknown is kubectl's word for what could not be read.
const unknown = "<unknown>"

func used(bytes uint64) string {
	if bytes == 0 {
		return unknown
	}
	return size(bytes)
}

// rate returns a rate with its limit, if it has one: 9.8Mi/10Mi.
func rate(bytes int64, limit uint64) string {
	if limit == 0 {
		return size(uint64(bytes))
	}
	return size(uint64(bytes)) + "/" + qos.Bytes(limit)
}

// size formats a number of bytes with a binary unit: 0, 812, 1.5Ki, 230Mi.
func size(bytes uint64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if unit > 0 && value < 10 {
		return fmt.Sprintf("%.1f%s", value, units[unit])
	}
	return fmt.Sprintf("%.0f%s", value, units[unit])
}
