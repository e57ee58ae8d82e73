// Package whycmd is `virtctl why`.
package whycmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

// Options of `virtctl why`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Name    string
	Migrate bool
	// Set is the kind when a pool or replica set is asked about.
	Set *sets.Kind
}

// NewCmdWhy makes the command; runF replaces Run in tests.
func NewCmdWhy(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "why (NAME | vmpool/NAME | vmirs/NAME)",
		Short: "Explain what blocks a virtual machine, and what fixes it",
		Long: `Explain what blocks a virtual machine, and what fixes it.

It looks at the VM, its instance, the launcher's pod, volumes, the node, virtkit itself and QEMU, shows the chain
from the one to the other, and names the causes: the first is the one to fix first. With --migrate it says
why the guest cannot move to another node, with all reasons at once. Of a pool or replica set it says why there
are fewer ready machines than there are to be, with the first cause of each that is not.

It ends with 0 when nothing blocks it or the VM is not meant to run, with 8 when time alone may help, with 1
when someone must act, and with 3 when there is no such VM.`,
		Example: cli.Examples(f.Program, `
			virtctl why demo
			virtctl why demo --migrate
			virtctl why vmpool/web
			virtctl why demo -o json | jq -r '.causes[0].mend[0]'`),
		Args:              cli.Args(1, 1, "the name of a VM"),
		ValidArgsFunction: complete(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.set(); err != nil {
				return err
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Migrate, "migrate", false, "Explain why the guest cannot move to another node")
	o.Output.AddFlags(cmd)
	return cmd
}

// complete has machines, and sets after a kind.
func complete(f *cli.Factory) cobra.CompletionFunc {
	machines, groups := completioncmd.VMs(f, 1), completioncmd.Sets(f, 1)
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if strings.Contains(toComplete, "/") {
			return groups(cmd, args, toComplete)
		}
		return machines(cmd, args, toComplete)
	}
}

// set finds out whether a pool or replica set is meant.
func (o *Options) set() error {
	word, name, ok := strings.Cut(o.Name, "/")
	if !ok {
		return nil
	}
	kind, known := sets.KindOf(word)
	if !known {
		return nil // vm/NAME, or no kind at all, which is said later
	}
	if name == "" || len(content.IsPathSegmentName(name)) > 0 {
		return cli.UsageErrorf("%q is not %s/NAME", o.Name, kind.Short)
	}
	if o.Migrate {
		return cli.UsageErrorf("--migrate is about one machine; %s has several", o.Name)
	}
	o.Set, o.Name = &kind, name
	return nil
}

// Run gathers, explains and prints.
func Run(ctx context.Context, o *Options) error {
	if o.Set != nil {
		return o.runSet(ctx)
	}
	c, target, err := o.Factory.Machine(o.Name)
	if err != nil {
		return err
	}
	var facts why.Facts
	err = o.Factory.IO.While("looking at "+target.Name, func() (err error) {
		facts, err = gather.Facts(ctx, c, target.Namespace, target.Name, o.Factory.Now())
		return err
	})
	if err != nil {
		return err
	}
	report := why.Explain(facts)
	switch {
	case o.Output.Given():
		err = o.Output.Print(report, o.Factory.IO.Out)
	case o.Migrate:
		err = printMigration(o.Factory.IO.Out, report, o.Factory.Program)
	default:
		err = printReport(o.Factory.IO.Out, report, o.Factory.Program)
	}
	if err != nil {
		return err
	}
	return exit(report, o.Migrate)
}

// runSet does the same of a pool or replica set.
func (o *Options) runSet(ctx context.Context) error {
	ns, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	var facts why.SetFacts
	err = o.Factory.IO.While("looking at "+o.Name, func() (err error) {
		facts, err = gather.Set(ctx, c, *o.Set, ns, o.Name, o.Factory.Now())
		return err
	})
	if err != nil {
		return err
	}
	report := why.ExplainSet(facts)
	if o.Output.Given() {
		err = o.Output.Print(report, o.Factory.IO.Out)
	} else {
		err = printReport(o.Factory.IO.Out, report, o.Factory.Program)
	}
	if err != nil {
		return err
	}
	return exit(report, false)
}

// exit is the report as an exit code. What it says has been printed.
func exit(r *why.Report, migrate bool) error {
	code := cli.ExitOK
	switch {
	case migrate && r.Migration != nil && r.Migration.Possible:
	case migrate:
		code = cli.ExitFailure
	case r.Verdict == why.Broken:
		code = cli.ExitFailure
	case r.Verdict == why.Waiting:
		code = cli.ExitTimeout
	}
	if len(r.Causes) > 0 && r.Causes[0].Reason == "NotFound" {
		code = cli.ExitNotFound
	}
	if code == cli.ExitOK {
		return nil
	}
	return &cli.ExitError{Code: code}
}

var marks = map[why.State]string{
	why.OK: "ok", why.Waiting: "wait", why.Broken: "FAIL", why.Off: "off",
	why.Unknown: "?",
}

func printReport(w io.Writer, r *why.Report, program string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s: %s\n", r.Metadata.Namespace, r.Metadata.Name, printable.Line(r.Summary))
	if len(r.Chain) > 0 {
		b.WriteString("\n")
		for i, l := range r.Chain {
			fmt.Fprintf(&b, "  %-4s  %s%s: %s\n", marks[l.State], strings.Repeat("  ", depth(r, i)),
				printable.Line(l.Object), printable.Line(l.Message))
		}
	}
	for i, c := range r.Causes {
		fmt.Fprintf(&b, "\n%d. %s (%s)\n", i+1, printable.Line(c.Message), c.Reason)
		printCause(&b, c, program)
	}
	if m := r.Migration; m != nil && !m.Possible && r.Verdict == why.OK {
		fmt.Fprintf(&b, "\nIt cannot move to another node: %s why %s -n %s --migrate\n", program, r.Metadata.Name,
			r.Metadata.Namespace)
	}
	printUnreadable(&b, r)
	_, err := io.WriteString(w, b.String())
	return err
}

// depth is how far a link is set in: each of a machine's below the one before, the machines of a set beside each other.
func depth(r *why.Report, i int) int {
	if r.Chain[0].Layer == why.LayerSet {
		return min(i, 1)
	}
	return i
}

func printMigration(w io.Writer, r *why.Report, program string) error {
	var b strings.Builder
	m := r.Migration
	switch {
	case m == nil:
		fmt.Fprintf(&b, "%s/%s: there is no guest to move: %s\n", r.Metadata.Namespace, r.Metadata.Name, r.Summary)
	case m.Possible:
		fmt.Fprintf(&b, "%s/%s: nothing keeps it from moving to another node\n", r.Metadata.Namespace, r.Metadata.Name)
	default:
		fmt.Fprintf(&b, "%s/%s: it cannot move to another node\n", r.Metadata.Namespace, r.Metadata.Name)
		for i, c := range m.Obstacles {
			fmt.Fprintf(&b, "\n%d. %s (%s)\n", i+1, printable.Line(c.Message), c.Reason)
			printCause(&b, c, program)
		}
	}
	printUnreadable(&b, r)
	_, err := io.WriteString(w, b.String())
	return err
}

func printCause(b *strings.Builder, c why.Cause, program string) {
	for i, mend := range c.Mend {
		label := "fix:"
		if i > 0 {
			label = " or:"
		}
		fmt.Fprintf(b, "   %s %s\n", label, printable.Line(cli.Mend(program, mend)))
	}
	if c.Evidence != "" && !strings.Contains(c.Evidence, c.Message) && !strings.Contains(c.Message, c.Evidence) {
		fmt.Fprintf(b, "   seen: %s\n", printable.Line(c.Evidence))
	}
}

func printUnreadable(b *strings.Builder, r *why.Report) {
	if len(r.Unreadable) > 0 {
		fmt.Fprintf(b, "\nYou may not read %s: there may be more to it.\n", strings.Join(r.Unreadable, ", "))
	}
}
