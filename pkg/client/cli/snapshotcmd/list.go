package snapshotcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

const formatWide = "wide"

// ListOptions are the options of `virtctl snapshot list`.
type ListOptions struct {
	Factory       *cli.Factory
	Output        *cli.Output
	Machine       string
	Selector      string
	AllNamespaces bool
}

// NewCmdList makes `virtctl snapshot list`.
func NewCmdList(f *cli.Factory) *cobra.Command {
	o := &ListOptions{Factory: f, Output: cli.NewOutput(formatWide)}
	cmd := &cobra.Command{
		Use:     "list [VM]",
		Aliases: []string{"ls"},
		Short:   "List snapshots, of one virtual machine or of all",
		Example: cli.Examples(f.Program, `
			virtctl snapshot list
			virtctl snapshot list demo -o wide
			virtctl snapshot list -A -l app=web`),
		Args:              cli.Args(0, 1, "the name of a VM, or none"),
		ValidArgsFunction: completioncmd.VMs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if o.Machine = strings.TrimPrefix(args[0], "vm/"); checkName("VM", o.Machine) != nil {
					return checkName("VM", o.Machine)
				}
			}
			if err := cli.CheckSelector(o.Selector); err != nil {
				return err
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return List(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "List the snapshots of all namespaces")
	flags.StringVarP(&o.Selector, "selector", "l", "", "Label `SELECTOR` of snapshots, such as app=web")
	o.Output.AddFlags(cmd)
	return cmd
}

// List prints the table or the objects.
func List(ctx context.Context, o *ListOptions) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	if o.AllNamespaces {
		namespace = ""
	}
	list, err := snapshot.List(ctx, c, namespace, o.Selector, o.Machine)
	if err != nil {
		return err
	}
	if len(list.Items) == 0 && o.Machine != "" && !o.AllNamespaces {
		// Snapshots outlive their VM and are listed; no snapshot of a VM that does not exist is an error.
		if _, err := c.VM(ctx, namespace, o.Machine); err != nil {
			return err
		}
	}
	if o.Output.Given() {
		return o.Output.Print(list, o.Factory.IO.Out)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(o.Factory.IO.ErrOut, "No snapshots found.")
		return nil
	}
	return o.table(o.Factory.IO.Out, list.Items)
}

func (o *ListOptions) table(out io.Writer, list []snapshotv1beta1.VirtualMachineSnapshot) error {
	wide := o.Output.Format == formatWide
	t := cli.NewTable(out)
	row := func(namespace string, cells, more []string) {
		if o.AllNamespaces {
			cells = append([]string{namespace}, cells...)
		}
		if wide {
			cells = append(cells, more...)
		}
		t.Row(cells...)
	}
	row("NAMESPACE", []string{"NAME", "VM", "PHASE", "READY", "AGE"},
		[]string{"INDICATIONS", "VOLUMES", "LEFT OUT", "ERROR"})
	for i := range list {
		s := &list[i]
		in, out := volumes(s)
		of := s.Spec.Source.Name
		if clone := snapshot.CloneOf(s); clone != "" {
			of += " (of clone " + clone + ")"
		}
		row(s.Namespace,
			[]string{
				s.Name, of, snapshot.Phase(s), strconv.FormatBool(vmsnapshots.Ready(s)),
				age(o.Factory.Now(), s.CreationTimestamp.Time),
			},
			[]string{
				orNone(strings.Join(snapshot.Indications(s), ",")), orNone(strings.Join(in, ",")),
				orNone(strings.Join(out, ",")), orNone(snapshot.Trouble(s)),
			})
	}
	return t.Flush()
}

func orNone(text string) string { return cmp.Or(text, "<none>") }

func age(now, then time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(0, now.Sub(then)))
}

// volumes returns the volumes that a snapshot has, and those that it does not have.
func volumes(s *snapshotv1beta1.VirtualMachineSnapshot) (in, out []string) {
	if s.Status == nil || s.Status.SnapshotVolumes == nil {
		return nil, nil
	}
	return s.Status.SnapshotVolumes.IncludedVolumes, s.Status.SnapshotVolumes.ExcludedVolumes
}
