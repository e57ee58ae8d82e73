// Package listcmd is `virtctl list`.
package listcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/list"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/sortby"
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
	// SortBy is a column or a JSONPath; empty for namespace and name.
	SortBy string

	// first is the first argument where it is no kind that is listed here, and may yet have been meant for one.
	first string

	sorter     sortby.Sorter[list.Row]
	setsSorter sortby.Sorter[unstructured.Unstructured]
}

const formatWide = "wide"

// NewCmdList makes the command.
func NewCmdList(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(formatWide)}
	cmd := &cobra.Command{
		Use:     "list [vm|vmi|all|vmpool|vmirs] [NAME...]",
		Aliases: []string{"ls"},
		Short:   "List virtual machines",
		Long: `List virtual machines, one row each with what the VM and its running instance say.

"vm", the default, lists VirtualMachines; "vmi" lists VirtualMachineInstances; "all" lists VirtualMachines and the
instances that belong to none. "vmpool" and "vmirs" list VirtualMachinePools and VirtualMachineInstanceReplicaSets.

Names choose some of them, with -A those of every namespace. With -o one name alone prints the object, but a list
with -A. The exit code is 3 when one of them is not there.

--sort-by takes a column, also one of -o wide, or a JSONPath into the objects, as kubectl get does. Words are in their
order; amounts begin with the greatest, and ages with the oldest. With --watch only the first list is sorted.`,
		Example: cli.Examples(f.Program, `
			virtctl list
			virtctl list -A -o wide
			virtctl list -A demo
			virtctl list demo -o jsonpath='{.status.printableStatus}'
			virtctl list vmi -l app=web --watch
			virtctl list --sort-by age
			virtctl list -A --sort-by .metadata.creationTimestamp
			virtctl list --watch -o jsonl
			virtctl list vmpool
			virtctl list -o custom-columns=NAME:.metadata.name,STATUS:.status.printableStatus`),
		Args:              cli.Args(0, -1, "one of vm, vmi, all, vmpool, vmirs, and names"),
		ValidArgsFunction: completeArgs(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("sort-by") && o.SortBy == "" {
				return cli.UsageErrorf("--sort-by is empty; it takes a column or a JSONPath")
			}
			if err := o.complete(args); err != nil {
				return err
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
	flags.StringVar(&o.SortBy, "sort-by", "", "Sort by a `COLUMN`, or by a JSONPath such as .metadata.name")
	completioncmd.Flag(cmd, "sort-by", completeSortBy)
	o.Output.AddFlags(cmd)
	return cmd
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
		} else if o.first = args[0]; len(args) > 1 {
			if cli.CheckKind(args) != nil {
				return cli.UsageErrorf("%q: list takes vm, vmi, all, vmpool or vmirs before names; %s; a VM of that "+
					"name is vm/%[1]s", o.first, cli.Elsewhere(o.Factory.Program, o.first))
			}
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
	if o.SortBy != "" {
		if o.Watch && o.Output.Given() {
			return cli.UsageErrorf("--sort-by sorts a list; with --watch -o %s objects come as they change",
				o.Output.Format)
		}
		var err error
		if o.sorter, err = list.SortBy(o.SortBy); err != nil {
			return cli.UsageErrorf("--sort-by: %s", err)
		}
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
	rows := list.Rows(o.Selection.Kind, objects.VMs, objects.VMIs)
	if o.Output.Format == formatWide || o.SortBy != "" {
		list.Sizes(ctx, c, rows)
	}
	if err := o.sort(rows); err != nil {
		return err
	}
	if o.Output.Given() {
		if missing != nil && len(o.Selection.Names) == 1 {
			return missing
		}
		return errors.Join(o.Output.Print(o.object(objects, rows), o.Factory.IO.Out), missing)
	}
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

// missing returns the error for machines that were named and do not exist.
func (o *Options) missing(objects list.Objects) error {
	var out []error
	resource := action.ResourceVMs
	if o.Selection.Kind == list.VMIs {
		resource = action.ResourceVMIs
	}
	for _, name := range o.Selection.Missing(objects) {
		err := o.notFound(resource, name)
		if hint := cli.Elsewhere(o.Factory.Program, name); hint != "" && name == o.first {
			err = fmt.Errorf("%w; %s", err, hint)
		}
		out = append(out, err)
	}
	return errors.Join(out...)
}

// notFound returns the error for a name that is not in the namespace or, with -A, in none, in the server's words.
func (o *Options) notFound(resource, name string) error {
	if o.AllNamespaces {
		return fmt.Errorf("%w in any namespace", action.NotFound(resource, "", name))
	}
	return action.NotFound(resource, o.Selection.Namespace, name)
}

// alone reports whether the one object that was named is printed, and no list. A name may be in several namespaces.
func (o *Options) alone() bool { return len(o.Selection.Names) == 1 && !o.AllNamespaces }

// none prints on stderr that there is nothing, as kubectl does.
func (o *Options) none() {
	if o.AllNamespaces {
		fmt.Fprintln(o.Factory.IO.ErrOut, "No virtual machines found.")
		return
	}
	fmt.Fprintf(o.Factory.IO.ErrOut, "No virtual machines found in namespace %s.\n", o.Selection.Namespace)
}

// sort sorts rows as --sort-by asks.
func (o *Options) sort(rows []list.Row) error {
	if o.sorter == nil {
		return nil
	}
	return o.sorter(rows)
}

// object returns what to print with -o: a list, or the one object that was named. A list that --sort-by sorts has the
// order of rows.
func (o *Options) object(objects list.Objects, rows []list.Row) runtime.Object {
	if o.alone() {
		if o.Selection.Kind != list.VMIs && len(objects.VMs) == 1 {
			return &objects.VMs[0]
		}
		return &objects.VMIs[0]
	}
	if o.sorter != nil {
		objects = sorted(rows)
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
	if o.sorter != nil {
		for i := range rows {
			l.Items = append(l.Items, runtime.RawExtension{Object: rows[i].Object})
		}
		return l
	}
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

// sorted returns the objects of rows, in their order.
func sorted(rows []list.Row) list.Objects {
	var out list.Objects
	for i := range rows {
		switch object := rows[i].Object.(type) {
		case *v1.VirtualMachine:
			out.VMs = append(out.VMs, *object)
		case *v1.VirtualMachineInstance:
			out.VMIs = append(out.VMIs, *object)
		}
	}
	return out
}

func (o *Options) watch(ctx context.Context, c list.API) error {
	if o.Output.Given() {
		return list.FollowObjects(ctx, c, o.Selection, func(object runtime.Object) error {
			return o.Output.Print(object, o.Factory.IO.Out)
		})
	}
	t := &table{o: o}
	return list.Follow(ctx, c, o.Selection, func(rows []list.Row) error {
		if !t.started {
			if err := o.sort(rows); err != nil {
				return err
			}
		}
		return t.print(rows)
	})
}
