// Package whycmd is `virtctl why`.
package whycmd

import (
	"context"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl why`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Chosen  cli.Chosen
	Migrate bool
	// From is the pod or address that connects to the guests, empty when no connection is asked about.
	From     string
	Protocol string
	Port     int32
}

// NewCmdWhy makes the command.
func NewCmdWhy(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "why (NAME... | (vmpool|vmirs|snapshot|restore|clone)/NAME | -l SELECTOR)",
		Short: "Explain what blocks a virtual machine, and what fixes it",
		Long: `Explain what blocks a virtual machine, and what fixes it.

It looks at the VM, its instance, the launcher's pod, volumes, the node, virtkit itself and QEMU, shows the chain
from the one to the other, and names the causes: the first is the one to fix first. With --migrate it says
why the guest cannot move to another node, with all reasons at once. Of a pool or replica set it says why there
are fewer ready machines than there are to be, with the first cause of each that is not. Of a snapshot, restore or
clone it says what it waits for, or why it failed.

With --from POD it says what drops connections from that pod to the guest, or that nothing known does: NetworkPolicies
of both namespaces, the ports that the guest's interface lists, a cable that is pulled, a guest that does not run. POD
is NAME, NAMESPACE/NAME, or the address of a client outside of the cluster. Without --port it is about all ports.

It ends with 0 when nothing blocks it or the VM is not meant to run, with 8 when time alone may help, with 1
when someone must act, with 3 when there is no such VM or pod, and with 4 when the answer to --from depends on what
you may not read. Of several machines it explains one after the other; -o prints a list of reports, and the code is 1
when those of the machines that are blocked differ.`,
		Example: cli.Examples(f.Program, `
			virtctl why demo
			virtctl why demo --migrate
			virtctl why demo --from client --port 80
			virtctl why demo --from shop/client --port 53 --protocol udp
			virtctl why demo --from 192.0.2.7
			virtctl why web db
			virtctl why -l app=web
			virtctl why vmpool/web
			virtctl why snapshot/before-upgrade
			virtctl why demo -o json | jq -r '.causes[0].mend[0]'`),
		Args:              cli.Args(0, -1, "the names of VMs"),
		ValidArgsFunction: complete(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Chosen.Names = args
			if err := o.Chosen.Validate(cmd, true); err != nil {
				return err
			}
			if err := o.validateConnection(cmd); err != nil {
				return err
			}
			if _, err := o.subjects(metav1.NamespaceDefault); err != nil {
				return err
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Migrate, "migrate", false, "Explain why the guest cannot move to another node")
	o.addConnectionFlags(cmd)
	o.Chosen.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

// complete completes machines, and sets after a kind.
func complete(f *cli.Factory) cobra.CompletionFunc {
	machines, groups := completioncmd.Machines(f, completioncmd.VMs), completioncmd.Sets(f, -1)
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		word, _, typed := strings.Cut(toComplete, "/")
		if _, ok := sets.KindOf(word); typed && ok {
			return groups(cmd, args, toComplete)
		}
		if kind, ok := gather.OperationOf(word); typed && ok {
			return completioncmd.Prefixed(word+"/", completioncmd.Operations(f, kind))(cmd, args, toComplete)
		}
		return machines(cmd, args, toComplete)
	}
}

// subject is what is asked about: a machine, or a pool or replica set.
type subject struct {
	target cli.Target
	// set is the kind of the set that target names, nil for a machine.
	set *sets.Kind
	// operation is the kind of a snapshot, restore or clone that target names, empty for none.
	operation string
}

// subjects returns what the names name, each once; namespace is that of names without one.
func (o *Options) subjects(namespace string) ([]subject, error) {
	names, kind := o.Chosen.Names, ""
	if len(names) > 1 {
		if _, ok := cli.KindOf(names[0]); ok {
			kind, names = names[0], names[1:]
		} else if set, ok := sets.KindOf(names[0]); ok {
			return nil, cli.UsageErrorf("%q alone names nothing; say %s/%s", names[0], set.Short, names[1])
		} else if err := cli.CheckKind(names); err != nil {
			return nil, err
		}
	}
	var out []subject
	seen := map[string]bool{}
	for _, name := range names {
		s, err := o.subject(kind, name, namespace)
		if err != nil {
			return nil, err
		}
		id := s.target.Namespace + "/" + s.target.Name
		if s.set != nil {
			id = s.set.Short + "/" + id
		}
		if s.operation != "" {
			id = s.operation + "/" + id
		}
		if !seen[id] {
			out, seen[id] = append(out, s), true
		}
	}
	return out, nil
}

// subject returns what one name names, after a word for the kind or "".
func (o *Options) subject(kind, name, namespace string) (subject, error) {
	word, rest, ok := strings.Cut(name, "/")
	if kind, known := gather.OperationOf(word); ok && known {
		return o.operation(kind, rest, namespace)
	}
	set, known := sets.KindOf(word)
	if !ok || !known {
		words := []string{name}
		if kind != "" {
			words = []string{kind, name}
		}
		if _, machine := cli.KindOf(word); ok && kind == "" && !machine {
			return subject{}, cli.UsageErrorf("%q: the kind must be vm, vmi, vmpool, vmirs, snapshot, restore or "+
				"clone", name)
		}
		targets, err := cli.ParseTargets(words, namespace)
		if err != nil {
			return subject{}, err
		}
		return subject{target: targets[0]}, nil
	}
	if rest == "" || len(content.IsPathSegmentName(rest)) > 0 {
		return subject{}, cli.UsageErrorf("%q is not %s/NAME", name, set.Short)
	}
	if flag := o.ofMachine(); flag != "" {
		return subject{}, cli.UsageErrorf("%s is about one machine; %s has several", flag, name)
	}
	return subject{target: cli.Target{Namespace: namespace, Name: rest}, set: &set}, nil
}

// operation returns the subject of a snapshot, restore or clone.
func (o *Options) operation(kind, name, namespace string) (subject, error) {
	switch {
	case name == "" || len(content.IsPathSegmentName(name)) > 0:
		return subject{}, cli.UsageErrorf("%q is not %s/NAME", kind+"/"+name, kind)
	case o.ofMachine() != "":
		return subject{}, cli.UsageErrorf("%s is about a machine; %s/%s is none", o.ofMachine(), kind, name)
	}
	return subject{target: cli.Target{Namespace: namespace, Name: name}, operation: kind}, nil
}

// Run gathers, explains and prints.
func Run(ctx context.Context, o *Options) error {
	namespace, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	subjects, err := o.subjects(namespace)
	if err != nil {
		return err
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if o.Chosen.Selector != "" {
		_, targets, err := o.Chosen.Targets(ctx, o.Factory)
		if err != nil {
			return err
		}
		for _, t := range targets {
			subjects = append(subjects, subject{target: t})
		}
	}
	asked, err := o.connection(ctx, c, namespace)
	if err != nil {
		return err
	}
	reports, errs := o.explain(ctx, c, subjects, asked)
	if !o.Output.Given() {
		reports, errs = o.withoutMissing(reports, errs)
	}
	if err := o.print(reports); err != nil {
		return err
	}
	return outcome(reports, errs, o.Migrate)
}

// parallel is how many machines are looked at at once.
const parallel = 8

// explain looks at each subject, and returns the reports in their order and what could not be looked at.
func (o *Options) explain(
	ctx context.Context, c *client.Client, subjects []subject, asked *gather.Asked,
) ([]*why.Report, []error) {
	found, failures := make([]*why.Report, len(subjects)), make([]error, len(subjects))
	var names []string
	for _, s := range subjects {
		names = append(names, s.target.Name)
	}
	_ = o.Factory.IO.While("looking at "+strings.Join(names, ", "), func() error {
		var group sync.WaitGroup
		room := make(chan struct{}, parallel)
		for i, s := range subjects {
			room <- struct{}{}
			group.Go(func() {
				defer func() { <-room }()
				found[i], failures[i] = o.one(ctx, c, s, asked)
			})
		}
		group.Wait()
		return nil
	})
	var reports []*why.Report
	var errs []error
	for i := range subjects {
		if failures[i] != nil {
			errs = append(errs, failures[i])
		} else {
			reports = append(reports, found[i])
		}
	}
	return reports, errs
}

// one explains a subject; asked is the connection that is asked about, nil for none.
func (o *Options) one(
	ctx context.Context, c *client.Client, s subject, asked *gather.Asked,
) (*why.Report, error) {
	if s.operation != "" {
		facts, err := gather.Operation(ctx, c, s.operation, s.target.Namespace, s.target.Name)
		if err != nil {
			return nil, err
		}
		return why.ExplainOperation(facts), nil
	}
	if s.set != nil {
		facts, err := gather.Set(ctx, c, *s.set, s.target.Namespace, s.target.Name, o.Factory.Now())
		if err != nil {
			return nil, err
		}
		return why.ExplainSet(facts), nil
	}
	facts, err := gather.Facts(ctx, c, s.target.Namespace, s.target.Name, o.Factory.Now())
	if err != nil {
		return nil, err
	}
	if asked == nil {
		return why.Explain(facts), nil
	}
	connection, err := gather.Connection(ctx, c, facts, *asked)
	if err != nil {
		return nil, err
	}
	return why.ExplainConnection(connection), nil
}

// print writes the reports, each under its machine's name, two blank lines apart.
func (o *Options) print(reports []*why.Report) error {
	if o.Output.Given() {
		if len(reports) == 0 && !o.Chosen.Several() {
			return nil
		}
		objects := make([]runtime.Object, len(reports))
		for i, r := range reports {
			objects[i] = r
		}
		return o.Output.PrintAll(objects, !o.Chosen.Several(), o.Factory.IO.Out)
	}
	for i, r := range reports {
		if i > 0 {
			if _, err := io.WriteString(o.Factory.IO.Out, "\n\n"); err != nil {
				return err
			}
		}
		write := printReport
		switch {
		case o.Migrate:
			write = printMigration
		case r.Connection != nil:
			write = printConnection
		}
		if err := write(o.Factory.IO, r, o.Factory.Program); err != nil {
			return err
		}
	}
	return nil
}
