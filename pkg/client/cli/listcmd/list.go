// Package listcmd is `virtctl list`.
package listcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/list"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// Options of `virtctl list`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output

	Selection list.Selection
	// Sets is the kind of sets to list in place of machines; nil for machines.
	Sets          *sets.Kind
	AllNamespaces bool
	Watch         bool
}

const formatWide = "wide"

// NewCmdList makes the command; runF replaces Run in tests.
func NewCmdList(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(formatWide)}
	cmd := &cobra.Command{
		Use:     "list [vm|vmi|all|vmpool|vmirs] [NAME...]",
		Aliases: []string{"ls"},
		Short:   "List virtual machines",
		Long: `List virtual machines, one row each with what the VM and its running instance say.

"vm", the default, lists VirtualMachines; "vmi" lists VirtualMachineInstances; "all" lists VirtualMachines and the
instances that belong to none. "vmpool" and "vmirs" list VirtualMachinePools and VirtualMachineInstanceReplicaSets.

Names choose some of them, with -A those of every namespace. With -o one name alone prints the object, but a list
with -A. The exit code is 3 when one of them is not there.`,
		Example: cli.Examples(f.Program, `
			virtctl list
			virtctl list -A -o wide
			virtctl list -A demo
			virtctl list demo -o jsonpath='{.status.printableStatus}'
			virtctl list vmi -l app=web --watch
			virtctl list --watch -o jsonl
			virtctl list vmpool
			virtctl list -o custom-columns=NAME:.metadata.name,STATUS:.status.printableStatus`),
		Args:              cli.Args(0, -1, "one of vm, vmi, all, vmpool, vmirs, and names"),
		ValidArgsFunction: completeArgs(f),
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

// kindOf is what a first word chooses, when it is a kind.
func kindOf(word string) (list.Kind, bool) {
	switch strings.ToLower(word) {
	case "vm", "vms", "virtualmachine", "virtualmachines":
		return list.VMs, true
	case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances":
		return list.VMIs, true
	case "all":
		return list.All, true
	}
	return list.VMs, false
}

// completeArgs completes the kind and the names.
func completeArgs(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		names := completioncmd.VMs
		if len(args) > 0 {
			if kind, ok := sets.KindOf(args[0]); ok {
				return completioncmd.SetsOf(f, kind)(cmd, args, toComplete)
			}
			if kind, _ := kindOf(args[0]); kind == list.VMIs {
				names = completioncmd.VMIs
			}
		}
		found, directive := names(f, -1)(cmd, args, toComplete)
		if len(args) == 0 {
			// The kinds are there without a cluster.
			found, directive = append([]string{"vm", "vmi", "all", "vmpool", "vmirs"}, found...),
				cobra.ShellCompDirectiveNoFileComp
		}
		return found, directive
	}
}

func (o *Options) complete(args []string) error {
	if len(args) > 0 {
		if kind, ok := sets.KindOf(args[0]); ok {
			o.Sets = &kind
			return o.completeSets(args[1:])
		}
		kind, ok := kindOf(args[0])
		if o.Selection.Kind = kind; ok {
			args = args[1:]
		}
	} else {
		o.Selection.Kind = list.VMs
	}
	for _, name := range args {
		if kind, rest, ok := strings.Cut(name, "/"); ok {
			chosen, known := kindOf(kind)
			if !known || chosen == list.All || strings.Contains(rest, "/") {
				return cli.UsageErrorf("%q is not NAME, vm/NAME or vmi/NAME", name)
			}
			if len(o.Selection.Names) > 0 && chosen != o.Selection.Kind {
				return cli.UsageErrorf("VMs and instances cannot be named together; list all with their names does it")
			}
			o.Selection.Kind, name = chosen, rest
		}
		if name == "" {
			return cli.UsageErrorf("a name is empty")
		}
		if !slices.Contains(o.Selection.Names, name) {
			o.Selection.Names = append(o.Selection.Names, name)
		}
	}
	if err := cli.CheckSelector(o.Selection.LabelSelector); err != nil {
		return err
	}
	if _, err := fields.ParseSelector(o.Selection.FieldSelector); err != nil {
		return cli.UsageErrorf("--field-selector: %s", err)
	}
	if len(o.Selection.Names) > 0 {
		if o.Selection.LabelSelector != "" || o.Selection.FieldSelector != "" {
			return cli.UsageErrorf("names cannot be given with a selector")
		}
	}
	if o.Watch && o.Output.Given() && o.Output.Format != cli.FormatLines {
		return cli.UsageErrorf("--watch shows a table; with it, -o is %s or %s, not %q", formatWide, cli.FormatLines,
			o.Output.Format)
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
	if o.Sets != nil {
		return o.listSets(ctx, c)
	}
	if o.Watch {
		return o.watch(ctx, c)
	}
	objects, err := list.Get(ctx, c, o.Selection)
	if err != nil {
		return fmt.Errorf("list %s: %w", o.Selection.Kind, err)
	}
	missing := o.missing(objects)
	if o.Output.Given() {
		if missing != nil && len(o.Selection.Names) == 1 {
			return missing
		}
		return errors.Join(o.Output.Print(o.object(objects), o.Factory.IO.Out), missing)
	}
	rows := list.Rows(o.Selection.Kind, objects.VMs, objects.VMIs)
	if len(rows) == 0 {
		if missing != nil {
			return missing
		}
		o.none()
		return nil
	}
	if o.Output.Format == formatWide {
		list.Progress(ctx, c, o.Selection.Namespace, rows)
	}
	t := &table{o: o}
	return errors.Join(t.print(rows), missing)
}

// missing is the error for machines that were named and are not there.
func (o *Options) missing(objects list.Objects) error {
	var out []error
	for _, name := range o.Selection.Missing(objects) {
		out = append(out, o.notFound(string(o.Selection.Kind), name))
	}
	return errors.Join(out...)
}

// notFound is the error for a name that is not in the namespace or, with -A, in none.
func (o *Options) notFound(kind, name string) error {
	if o.AllNamespaces {
		return fmt.Errorf("%s %s in any namespace: %w", kind, name, action.ErrNotFound)
	}
	return fmt.Errorf("%s %s/%s: %w", kind, o.Selection.Namespace, name, action.ErrNotFound)
}

// alone is whether the one object that was named is printed, and no list. A name may be in several namespaces.
func (o *Options) alone() bool { return len(o.Selection.Names) == 1 && !o.AllNamespaces }

// none says on stderr that there is nothing, as kubectl does.
func (o *Options) none() {
	if o.AllNamespaces {
		fmt.Fprintln(o.Factory.IO.ErrOut, "No virtual machines found.")
		return
	}
	fmt.Fprintf(o.Factory.IO.ErrOut, "No virtual machines found in namespace %s.\n", o.Selection.Namespace)
}

// object is what to print with -o: a list, or the one object that was named.
func (o *Options) object(objects list.Objects) runtime.Object {
	if o.alone() {
		if o.Selection.Kind != list.VMIs && len(objects.VMs) == 1 {
			return &objects.VMs[0]
		}
		return &objects.VMIs[0]
	}
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
		if !store.Owned(&objects.VMIs[i]) {
			l.Items = append(l.Items, runtime.RawExtension{Object: &objects.VMIs[i]})
		}
	}
	return l
}

func (o *Options) watch(ctx context.Context, c list.API) error {
	if o.Output.Given() {
		return list.FollowObjects(ctx, c, o.Selection, func(object runtime.Object) error {
			return o.Output.Print(object, o.Factory.IO.Out)
		})
	}
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
		lines = append(lines, cli.Cells(row.Cells(now.Truncate(time.Second), o.AllNamespaces, wide)))
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
	w := cli.NewTable(t.o.Factory.IO.Out)
	for _, line := range lines {
		w.Row(line...)
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
