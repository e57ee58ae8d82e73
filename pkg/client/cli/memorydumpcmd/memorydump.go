// Package memorydumpcmd is `virtctl memory-dump`.
package memorydumpcmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/memorydump"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/vmexportcmd"
)

// Options of the two verbs.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Remove  bool
	Name    string
	Claim   string
	Create  bool
	Make    memorydump.Claim
	// File is where the dump is downloaded to once it is complete; empty leaves it on the claim.
	File string
	Way  vmexportcmd.Way

	cli.Waiting
}

// accessModes are the values of --access-mode.
var accessModes = []string{"ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"}

// NewCmdMemoryDump makes `virtctl memory-dump`.
func NewCmdMemoryDump(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "memory-dump",
		Short: "Dump the memory of a running virtual machine",
		Long: `Dump the memory of a running virtual machine to a PersistentVolumeClaim, for debuggers such as crash and volatility.

The guest stands still meanwhile.`,
	})
	cmd.AddCommand(NewCmdGet(f), NewCmdDownload(f), NewCmdRemove(f))
	return cmd
}

// NewCmdGet makes `virtctl memory-dump get`.
func NewCmdGet(f *cli.Factory) *cobra.Command {
	o := newOptions(f, false)
	cmd := o.command("get NAME", "Dump the memory to a claim",
		`Dump the memory of a running virtual machine to a PersistentVolumeClaim.

Each dump is an ELF core named NAME-CLAIM-TIME.memory.dump. Without --claim-name it goes to the claim of the last one.
The claim needs the guest's memory and 100Mi more; --create-claim makes one.

With --output FILE the dump is waited for and downloaded, as "memory-dump download" does. What is a format is none of a
file: write --output=./json for a file of that name.`, `
		virtctl memory-dump get demo --claim-name=dump
		virtctl memory-dump get demo --claim-name=dump --create-claim --wait
		virtctl memory-dump get demo --claim-name=dump --create-claim --output=demo.memory.tar.gz
		virtctl memory-dump get demo`)
	flags := cmd.Flags()
	flags.StringVar(&o.Claim, "claim-name", "", "Name of the PersistentVolumeClaim; that of the last dump unless given")
	flags.BoolVar(&o.Create, "create-claim", false, "Make the claim, large enough")
	flags.StringVar(&o.Make.StorageClass, "storage-class", "",
		"Storage class of a claim that is made; the cluster's default unless given")
	flags.StringVar(&o.Make.AccessMode, "access-mode", "",
		"Access mode of a claim that is made; ReadWriteOnce unless given")
	o.Way.AddFlags(cmd)
	output := flags.Lookup("output")
	output.Usage = "A `FILE` to which the dump is downloaded; or an output format: " +
		strings.TrimPrefix(output.Usage, "Output `FORMAT`: ")
	cli.CompleteFlag(cmd, "access-mode", accessModes...)
	cli.RefuseEmpty(cmd, "claim-name")
	completioncmd.Flag(cmd, "claim-name", completioncmd.Claims(f))
	return cmd
}

// NewCmdRemove makes `virtctl memory-dump remove`.
func NewCmdRemove(f *cli.Factory) *cobra.Command {
	o := newOptions(f, true)
	return o.command("remove NAME", "Let go of the claim of the last dump",
		`Let go of the claim that the memory of a virtual machine was dumped to.

The dumps on it stay. The next dump may go to another claim.`, `
		virtctl memory-dump remove demo`)
}

func newOptions(f *cli.Factory, remove bool) *Options {
	return &Options{Factory: f, Output: cli.NewOutput(), Remove: remove}
}

func (o *Options) command(use, short, long, examples string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               use,
		Short:             short,
		Long:              long,
		Example:           cli.Examples(o.Factory.Program, examples),
		Args:              cli.Args(1, 1, "the name of a VM"),
		ValidArgsFunction: completioncmd.VMs(o.Factory, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if cmd.Flags().Changed("output") && o.Output.Format == "" {
				return cli.UsageErrorf("--output: it is empty; name a file or an output format")
			}
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	o.AddFlags(cmd, "it is done", 10*time.Minute)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) validate() error {
	if !o.Remove && o.Output.Unknown() {
		o.File, o.Output.Format, o.Wait = o.Output.Format, "", true
	}
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if !o.Remove {
		if err := o.checkFile(); err != nil {
			return err
		}
	}
	switch {
	case o.Claim != "" && len(content.IsPathSegmentName(o.Claim)) > 0:
		return cli.UsageErrorf("--claim-name: %q is not a name", o.Claim)
	case o.Create && o.Claim == "":
		return cli.UsageErrorf("--create-claim needs the claim's name; give it with --claim-name")
	case !o.Create && o.Make != (memorydump.Claim{}):
		return cli.UsageErrorf("--storage-class and --access-mode are those of a claim that is made; give " +
			"--create-claim, too")
	case o.Make.AccessMode != "" && !slices.Contains(accessModes, o.Make.AccessMode):
		return cli.UsageErrorf("--access-mode: %q is not one of %s", o.Make.AccessMode, strings.Join(accessModes, ", "))
	}
	return nil
}

// checkFile looks at where the dump is downloaded to before the guest stands still for it.
func (o *Options) checkFile() error {
	if err := o.Way.Check(); err != nil {
		return err
	}
	if o.File == "" {
		if o.Way.Given() {
			return cli.UsageErrorf("--format, --port-forward, --local-port and --insecure are about a download; name " +
				"its file with --output")
		}
		return nil
	}
	return vmexportcmd.CheckFile(o.File)
}

// Run requests the change, and with Wait waits until it is made.
func Run(ctx context.Context, o *Options) error {
	t, c, err := machine(o.Factory, o.Name)
	if err != nil {
		return err
	}
	said := "Successfully submitted memory dump request of VM %s\n"
	if o.Remove {
		said = "Successfully submitted remove memory dump association of VM %s\n"
		err = memorydump.Remove(ctx, c, t.Namespace, t.Name)
	} else {
		var create *memorydump.Claim
		if o.Create {
			if err := o.Factory.CheckStorageClass(ctx, c, o.Make.StorageClass); err != nil {
				return err
			}
			create = &o.Make
		}
		err = o.unnamed(memorydump.Get(ctx, c, t.Namespace, t.Name, o.Claim, create))
	}
	if err != nil {
		o.interrupted(err, t, false)
		return o.Factory.NotRunning(ctx, c, t, err)
	}
	if !o.Output.Given() {
		if _, err := fmt.Fprintf(o.said(), said, t.Name); err != nil {
			return err
		}
	}
	if o.Wait {
		if err := o.wait(ctx, c, t); err != nil {
			o.interrupted(err, t, true)
			return err
		}
	}
	if !o.Output.Given() && !o.Wait {
		return nil
	}
	vm, err := c.VM(ctx, t.Namespace, t.Name)
	if err != nil {
		return fmt.Errorf("look at VM %s/%s: %w", t.Namespace, t.Name, err)
	}
	if o.Output.Given() {
		return o.Output.Print(vm, o.Factory.IO.Out)
	}
	if o.File == "" {
		_, err = fmt.Fprintln(o.Factory.IO.Out, memorydump.Reached(vm, o.Remove))
		return err
	}
	return download(ctx, &DownloadOptions{Factory: o.Factory, File: o.File, Way: o.Way, Timeout: o.Timeout}, c, t)
}

// machine returns the VM of a name, which may not be an instance's alone, and the client.
func machine(f *cli.Factory, name string) (cli.Target, *client.Client, error) {
	t, err := f.Target(name)
	if err == nil && t.Instance {
		err = cli.UsageErrorf("%q: only a VM has memory dumps; give the name of a VM", name)
	}
	if err != nil {
		return t, nil, err
	}
	c, err := f.Client()
	return t, c, err
}

// said is where it is said what was done: not where the dump itself goes to.
func (o *Options) said() io.Writer {
	if o.File == "-" {
		return o.Factory.IO.ErrOut
	}
	return o.Factory.IO.Out
}

// interrupted prints what becomes of the request when the user has ended the command.
func (o *Options) interrupted(err error, t cli.Target, accepted bool) {
	verb := "get"
	if o.Remove {
		verb = "remove"
	}
	o.Factory.IO.Requested(err, accepted, "memory-dump %s of VM %s/%s", verb, t.Namespace, t.Name)
}

// unnamed adds to what the server refuses for want of a claim's name which flag names one.
func (o *Options) unnamed(err error) error {
	if o.Claim == "" && apierrors.IsBadRequest(err) {
		return fmt.Errorf("%w; name the claim with --claim-name, and with --create-claim it is made", err)
	}
	return err
}

func (o *Options) wait(ctx context.Context, c *client.Client, t cli.Target) error {
	return o.Until(ctx, o.Factory.IO, "waiting for the memory dump", func(ctx context.Context) error {
		_, err := wait.Until(ctx, c, t.Namespace, t.Name, memorydump.Done(o.Remove))
		return err
	})
}
