// Package list is `virtctl list`.
package list

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/action/list"
	"github.com/virtkit/virtkit/pkg/cli"
)

// Options of `virtctl list`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output

	Selection     list.Selection
	AllNamespaces bool
	Watch         bool
}

const formatWide = "wide"

// NewCmdList makes the command; runF replaces Run in tests.
func NewCmdList(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(formatWide)}
	cmd := &cobra.Command{
		Use:     "list [vm|vmi|all]",
		Aliases: []string{"ls"},
		Short:   "List virtual machines",
		Long: `List virtual machines, one row each with what the VM and its running instance say.

"vm", the default, lists VirtualMachines; "vmi" lists VirtualMachineInstances; "all" lists VirtualMachines and the
instances that belong to none.`,
		Example: cli.Examples(f.Program, `
			virtctl list
			virtctl list -A -o wide
			virtctl list vmi -l app=web --watch
			virtctl list -o custom-columns=NAME:.metadata.name,STATUS:.status.printableStatus`),
		Args: cli.Args(0, 1, "one of vm, vmi, all"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"vm", "vmi", "all"}, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "List the machines of all namespaces")
	flags.StringVarP(&o.Selection.LabelSelector, "selector", "l", "", "Label `SELECTOR`, such as app=web,tier!=test")
	flags.StringVar(&o.Selection.FieldSelector, "field-selector", "", "Field `SELECTOR`, such as metadata.name=demo")
	flags.BoolVarP(&o.Watch, "watch", "w", false, "Go on and show changes as they happen")
	flags.BoolVar(&o.Output.NoHeaders, "no-headers", false, "Leave out the column titles")
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) complete(args []string) error {
	kind := "vm"
	if len(args) > 0 {
		kind = args[0]
	}
	switch strings.ToLower(kind) {
	case "vm", "vms", "virtualmachine", "virtualmachines":
		o.Selection.Kind = list.VMs
	case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances":
		o.Selection.Kind = list.VMIs
	case "all":
		o.Selection.Kind = list.All
	default:
		return cli.UsageErrorf("%q is not one of vm, vmi, all; one machine is chosen with --field-selector metadata.name=NAME", kind)
	}
	if o.Watch && o.Output.Given() {
		return cli.UsageErrorf("--watch shows a table; it cannot be given with -o %s", o.Output.Format)
	}
	return o.Output.Validate()
}

// Run prints the table or the objects.
func Run(ctx context.Context, o *Options) error {
	var err error
	if !o.AllNamespaces {
		if o.Selection.Namespace, err = o.Factory.Namespace(); err != nil {
			return err
		}
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if o.Watch {
		return o.watch(ctx, c)
	}
	objects, err := list.Get(ctx, c, o.Selection)
	if err != nil {
		return fmt.Errorf("list %s: %w", o.Selection.Kind, err)
	}
	if o.Output.Given() {
		return o.Output.Print(o.object(objects), o.Factory.IO.Out)
	}
	rows := list.Rows(o.Selection.Kind, objects.VMs, objects.VMIs)
	if len(rows) == 0 {
		o.none()
		return nil
	}
	t := &table{o: o}
	return t.print(rows)
}

// none says on stderr that there is nothing, as kubectl does.
func (o *Options) none() {
	if o.AllNamespaces {
		fmt.Fprintln(o.Factory.IO.ErrOut, "No virtual machines found.")
		return
	}
	fmt.Fprintf(o.Factory.IO.ErrOut, "No virtual machines found in namespace %s.\n", o.Selection.Namespace)
}

// object is the list to print with -o.
func (o *Options) object(objects list.Objects) runtime.Object {
	switch o.Selection.Kind {
	case list.VMs:
		l := &v1.VirtualMachineList{Items: objects.VMs}
		l.SetGroupVersionKind(v1.GroupVersion.WithKind("VirtualMachineList"))
		return l
	case list.VMIs:
		l := &v1.VirtualMachineInstanceList{Items: objects.VMIs}
		l.SetGroupVersionKind(v1.GroupVersion.WithKind("VirtualMachineInstanceList"))
		return l
	}
	l := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for i := range objects.VMs {
		l.Items = append(l.Items, runtime.RawExtension{Object: &objects.VMs[i]})
	}
	for i := range objects.VMIs {
		if metav1.GetControllerOf(&objects.VMIs[i]) == nil {
			l.Items = append(l.Items, runtime.RawExtension{Object: &objects.VMIs[i]})
		}
	}
	return l
}

func (o *Options) watch(ctx context.Context, c list.API) error {
	t := &table{o: o}
	return list.Follow(ctx, c, o.Selection, t.print)
}

// table prints rows in columns. Rows that come later keep the widths of those before where they fit.
type table struct {
	o       *Options
	started bool
	widths  []int
}

func (t *table) print(rows []list.Row) error {
	o := t.o
	wide := o.Output.Format == formatWide
	var lines [][]string
	if !t.started && !o.Output.NoHeaders {
		lines = append(lines, list.Headers(o.AllNamespaces, wide))
	}
	t.started = true
	now := o.Factory.Now()
	for _, row := range rows {
		lines = append(lines, row.Cells(now.Truncate(time.Second), o.AllNamespaces, wide))
	}
	if !o.Watch {
		return t.aligned(lines)
	}
	t.widen(lines)
	for _, line := range lines {
		if err := t.padded(line); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) aligned(lines [][]string) error {
	w := tabwriter.NewWriter(t.o.Factory.IO.Out, 0, 8, 3, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	return w.Flush()
}

// widen makes room for all lines before the first of them is printed.
func (t *table) widen(lines [][]string) {
	for _, line := range lines {
		if t.widths == nil {
			t.widths = slices.Repeat([]int{10}, len(line))
		}
		for i, cell := range line {
			t.widths[i] = max(t.widths[i], len(cell))
		}
	}
}

func (t *table) padded(line []string) error {
	var b strings.Builder
	for i, cell := range line {
		if i == len(line)-1 {
			b.WriteString(cell)
			break
		}
		fmt.Fprintf(&b, "%-*s   ", t.widths[i], cell)
	}
	_, err := fmt.Fprintln(t.o.Factory.IO.Out, b.String())
	return err
}
