// Package vmexportcmd is `virtctl vmexport`.
package vmexportcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// kind is what is said of an export that was made or deleted.
const kind = "virtualmachineexport.export.kubevirt.io"

// NewCmdVMExport makes `virtctl vmexport`.
func NewCmdVMExport(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "vmexport",
		Short: "Export the volumes of a virtual machine, a snapshot or a claim",
		Long: `Export the volumes of a virtual machine, a snapshot or a claim.

A VirtualMachineExport has a pod that serves the volumes, to who has its token, until its time is over. A virtual
machine must be stopped meanwhile; of one that runs, export a snapshot.`,
	})
	cmd.AddCommand(NewCmdCreate(f), NewCmdDelete(f), NewCmdDownload(f))
	return cmd
}

// source is what is exported, as flags.
type source struct{ VM, Snapshot, Claim string }

func (s *source) addFlags(f *cli.Factory, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.VM, "vm", "", "Export the volumes of a `VM`, which must be stopped")
	flags.StringVar(&s.Snapshot, "snapshot", "", "Export the volumes of a VirtualMachineSnapshot")
	flags.StringVar(&s.Claim, "pvc", "", "Export a PersistentVolumeClaim, which nobody may use meanwhile")
	completioncmd.Flag(cmd, "vm", completioncmd.VMs(f, -1))
	completioncmd.Flag(cmd, "snapshot", completioncmd.Snapshots(f, -1))
	completioncmd.Flag(cmd, "pvc", completioncmd.Claims(f))
}

// chosen returns the source that the flags name; nil for none.
func (s *source) chosen() (*export.Source, error) {
	var out *export.Source
	for _, of := range []export.Source{
		{Kind: exports.KindVM, Name: strings.TrimPrefix(s.VM, "vm/")},
		{Kind: exports.KindSnapshot, Name: s.Snapshot},
		{Kind: exports.KindClaim, Name: s.Claim},
	} {
		if of.Name == "" {
			continue
		}
		if out != nil {
			return nil, cli.UsageErrorf("--vm, --snapshot and --pvc: one of them is exported at a time")
		}
		if err := checkName(of.Name); err != nil {
			return nil, err
		}
		out = &of
	}
	return out, nil
}

func checkName(name string) error {
	if problems := content.IsDNS1123Subdomain(name); len(problems) > 0 {
		return cli.UsageErrorf("%q is not a name: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// more is what else an export may be made with, as flags.
type more struct {
	TTL                 time.Duration
	Labels, Annotations []string
}

func (m *more) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&m.TTL, "ttl", 0, "How long the export lives; two hours unless given")
	flags.StringSliceVar(&m.Labels, "labels", nil, "Labels of the export and its pod: KEY=VALUE; several with commas")
	flags.StringSliceVar(&m.Annotations, "annotations", nil,
		"Annotations of the export and its pod, as KEY=VALUE; several with commas")
}

// request returns the export that is to be made.
func (m *more) request(name string, of export.Source) (r export.Request, err error) {
	if m.TTL < 0 {
		return r, cli.UsageErrorf("--ttl: %s is over already; give a time such as 30m", m.TTL)
	}
	r = export.Request{Name: name, Source: of, TTL: m.TTL}
	if r.Labels, err = cli.Pairs("labels", m.Labels); err != nil {
		return r, err
	}
	r.Annotations, err = cli.Pairs("annotations", m.Annotations)
	return r, err
}

// CreateOptions are the options of `virtctl vmexport create`.
type CreateOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	source
	more

	request export.Request
}

// NewCmdCreate makes `virtctl vmexport create`.
func NewCmdCreate(f *cli.Factory) *cobra.Command {
	o := &CreateOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "create NAME (--vm VM | --snapshot SNAPSHOT | --pvc CLAIM)",
		Short: "Make an export",
		Long: `Make an export, and a Secret with the token that its downloads need.

The Secret is secret-NAME; one that is there is used. What is to be exported may come later: the export waits for it.`,
		Example: cli.Examples(f.Program, `
			virtctl vmexport create demo-export --vm=demo
			virtctl vmexport create before-upgrade --snapshot=before-upgrade --ttl=30m
			virtctl vmexport create disk --pvc=disk`),
		Args:              cli.Args(1, 1, "the name of the export"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args[0]); err != nil {
				return err
			}
			return Create(cmd.Context(), o)
		},
	}
	o.source.addFlags(f, cmd)
	o.more.addFlags(cmd)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *CreateOptions) complete(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	of, err := o.chosen()
	if err != nil {
		return err
	}
	if of == nil {
		return cli.UsageErrorf("what is to be exported? Name it with --vm, --snapshot or --pvc")
	}
	if o.request, err = o.more.request(name, *of); err != nil {
		return err
	}
	return o.Output.Validate()
}

// Create makes an export.
func Create(ctx context.Context, o *CreateOptions) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	o.request.Namespace = namespace
	object := export.New(o.request)
	if o.DryRun != cli.DryRunClient {
		missing := o.request.Source.Look(ctx, c, namespace)
		if missing != nil && !apierrors.IsNotFound(missing) {
			return missing
		}
		if object, err = export.Create(ctx, c, object, o.DryRun == cli.DryRunServer); err != nil {
			o.Factory.IO.Interrupted(err, "VirtualMachineExport %s/%s may have been created", namespace, o.request.Name)
			return err
		}
		if missing != nil {
			fmt.Fprintf(o.Factory.IO.ErrOut, "warning: %s; the export waits for it\n", missing)
		}
	}
	return o.Output.Created(o.DryRun, kind, object, o.Factory.IO.Out)
}

// DeleteOptions are the options of `virtctl vmexport delete`.
type DeleteOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	Name    string
}

// NewCmdDelete makes `virtctl vmexport delete`.
func NewCmdDelete(f *cli.Factory) *cobra.Command {
	o := &DeleteOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete an export",
		Long: `Delete an export with its pod, its token and what it has restored of a snapshot.

What it exports stays. An export that is not there is no error.`,
		Example:           cli.Examples(f.Program, "virtctl vmexport delete demo-export"),
		Args:              cli.Args(1, 1, "the name of the export"),
		ValidArgsFunction: completioncmd.Exports(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := checkName(o.Name); err != nil {
				return err
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Delete(cmd.Context(), o)
		},
	}
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

// Delete deletes an export.
func Delete(ctx context.Context, o *DeleteOptions) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	said := "deleted" + o.DryRun.Suffix()
	if o.DryRun != cli.DryRunClient {
		err := export.Delete(ctx, c, namespace, o.Name, "", o.DryRun == cli.DryRunServer)
		switch {
		case apierrors.IsNotFound(err):
			said = "does not exist"
		case err != nil:
			return err
		}
	}
	if o.Output.Given() {
		return o.Output.Print(&v1beta1.VirtualMachineExport{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: exports.Kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.Name},
		}, o.Factory.IO.Out)
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "%s %q %s\n", kind, o.Name, said)
	return err
}
