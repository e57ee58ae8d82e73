package memorydumpcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/memorydump"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/vmexportcmd"
	"github.com/virtkit/virtkit/pkg/names"
)

// DownloadOptions are the options of `virtctl memory-dump download`.
type DownloadOptions struct {
	Factory *cli.Factory
	Name    string
	// File is where the dump goes to, - for standard output; Format and the ways to the export are those of
	// `virtctl vmexport download`.
	File string
	Way  vmexportcmd.Way

	Timeout cli.Timeout
}

// NewCmdDownload makes `virtctl memory-dump download`.
func NewCmdDownload(f *cli.Factory) *cobra.Command {
	o := &DownloadOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "download NAME --output FILE",
		Short: "Download the last dump",
		Long: `Download what the memory of a virtual machine was dumped to the last time: the claim with the dump, as an archive
(tar), compressed unless --format=raw is given. One that is still being written is waited for.

The claim is exported for the download, as by "virtctl vmexport download --pvc", which also downloads a claim that the
VM has let go of.`,
		Example: cli.Examples(f.Program, `
			virtctl memory-dump download demo --output=demo.memory.tar.gz
			virtctl memory-dump download demo --output=- --format=raw | tar -x --to-stdout > demo.elf`),
		Args:              cli.Args(1, 1, "the name of a VM"),
		ValidArgsFunction: completioncmd.VMs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if o.File == "" {
				return cli.UsageErrorf("name the file to write with --output; --output=- is standard output")
			}
			if err := errors.Join(o.Way.Check(), vmexportcmd.CheckFile(o.File)); err != nil {
				return err
			}
			return Download(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.File, "output", "o", "", "The `FILE` to write; - is standard output")
	o.Way.AddFlags(cmd)
	o.Timeout = cli.Timeout{Duration: 10 * time.Minute, Unit: time.Second}
	cmd.Flags().Var(&o.Timeout, "timeout", "How long to wait for a dump that is being written; 0 is no limit")
	return cmd
}

// Download waits for the last dump of a VM and downloads it.
func Download(ctx context.Context, o *DownloadOptions) error {
	t, c, err := machine(o.Factory, o.Name)
	if err != nil {
		return err
	}
	return download(ctx, o, c, t)
}

// download is Download of a VM that is known.
func download(ctx context.Context, o *DownloadOptions, c *client.Client, t cli.Target) error {
	claim, err := o.claim(ctx, c, t)
	if err != nil {
		return err
	}
	return vmexportcmd.RunDownload(ctx, o.Way.OfClaim(o.Factory, exportName(t.Name, claim), t.Namespace, claim, o.File))
}

// claim returns the claim of the VM's last dump, once it is complete.
func (o *DownloadOptions) claim(ctx context.Context, c *client.Client, t cli.Target) (string, error) {
	vm, err := c.VM(ctx, t.Namespace, t.Name)
	if err != nil {
		return "", fmt.Errorf("look at VM %s/%s: %w", t.Namespace, t.Name, err)
	}
	if vm.Status.MemoryDumpRequest == nil {
		return "", fmt.Errorf("the memory of VM %s/%s was not dumped, or its claim was removed from the VM; `%s "+
			"memory-dump get %s%s --claim-name CLAIM` dumps it", t.Namespace, t.Name, o.Factory.Program, t.Name,
			o.Factory.InNamespace(t.Namespace))
	}
	waiting := cli.Waiting{Timeout: o.Timeout}
	err = waiting.Until(ctx, o.Factory.IO, "waiting for the memory dump", func(ctx context.Context) error {
		state, err := wait.Until(ctx, c, t.Namespace, t.Name, memorydump.Done(false))
		if err == nil {
			vm = state.VM
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return vm.Status.MemoryDumpRequest.ClaimName, nil
}

// exportName returns the name of the export of a VM's dump on a claim.
func exportName(vm, claim string) string {
	const suffix = "-memory-dump"
	return names.Shorten(vm+"-"+claim, names.MaxLabel-len(suffix)) + suffix
}
