package backupcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// ImportOptions are the options of `virtctl import`.
type ImportOptions struct {
	Factory     *cli.Factory
	Output      *cli.Output
	DryRun      cli.DryRun
	Wish        backup.Wish
	Quiet       bool
	WaitSeconds uint

	file string
}

var accessModes = []string{
	string(corev1.ReadWriteOnce), string(corev1.ReadWriteMany), string(corev1.ReadWriteOncePod),
}

// NewCmdImport makes `virtctl import`.
func NewCmdImport(f *cli.Factory) *cobra.Command {
	o := &ImportOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a virtual machine of a file that export has written",
		Long: `Make a virtual machine, with its disks, of a file that "virtctl export" has written, on any cluster with virtkit.

The file is read and verified before anything is made. Each disk gets a claim NAME-VOLUME, to which it is uploaded
through the API server, and then the VM is made. It is stopped unless --start is given, and has MAC addresses, a
firmware UUID and a serial number of its own unless --keep-identity is given. When the import fails or is interrupted,
the claims are deleted; when it was killed, the same command goes on.

With --dry-run=client the claims and the VM are printed; the disks are not read.`,
		Example: cli.Examples(f.Program, `
			virtctl import demo.tar
			virtctl import demo.tar --name demo-copy -n shop --storage-class fast --start
			virtctl import demo.tar --dry-run=client`),
		Args: cli.Args(1, 1, "the file"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			return Import(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Wish.Name, "name", "", "The VM's `NAME`; the one that it had unless given")
	flags.StringVar(&o.Wish.StorageClass, "storage-class", "",
		"Storage class of the claims; the cluster's default unless given")
	flags.StringVar(&o.Wish.AccessMode, "access-mode", "",
		"Access mode of the claims; the modes that they had unless given")
	flags.BoolVar(&o.Wish.KeepIdentity, "keep-identity", false,
		"Keep MAC addresses, firmware UUID and serial number: for a VM that is not there any more")
	flags.BoolVar(&o.Wish.Start, "start", false, "Start the VM")
	flags.UintVar(&o.WaitSeconds, "wait-secs", 300, "Seconds to wait while an upload does not go on")
	flags.BoolVarP(&o.Quiet, "quiet", "q", false, "Show no progress")
	cli.CompleteFlag(cmd, "access-mode", accessModes...)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *ImportOptions) validate() error {
	if problems := content.IsDNS1123Subdomain(o.Wish.Name); o.Wish.Name != "" && len(problems) > 0 {
		return cli.UsageErrorf("--name: %q is not a name: %s", o.Wish.Name, strings.Join(problems, "; "))
	}
	if o.Wish.AccessMode != "" && !slices.Contains(accessModes, o.Wish.AccessMode) {
		return cli.UsageErrorf("--access-mode: %q is not one of %s", o.Wish.AccessMode,
			strings.Join(accessModes, ", "))
	}
	return o.Output.Validate()
}

// open opens the file, which must be a regular one: it is read twice.
func (o *ImportOptions) open() (*os.File, int64, error) {
	file, err := os.Open(o.file)
	if err != nil {
		return nil, 0, &cli.ExitError{Code: cli.ExitUsage, Err: errors.New(cli.WhyUnreadable(o.file, err))}
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = cli.UsageErrorf("%s is not a regular file; name one that `%s export` has written", o.file,
			o.Factory.Program)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// Import makes the VM.
func Import(ctx context.Context, o *ImportOptions) (err error) {
	in, size, err := o.open()
	if err != nil {
		return err
	}
	defer in.Close()
	file, err := backup.Open(in, size)
	if err != nil {
		return fmt.Errorf("%s: %w", o.file, err)
	}
	if o.Wish.Namespace, err = o.Factory.Namespace(); err != nil {
		return err
	}
	made, err := file.Make(o.Wish)
	if err != nil {
		return fmt.Errorf("%s: %w", o.file, err)
	}
	shown := newProgress(o.Factory, o.Quiet)
	defer shown.end()
	began := o.Factory.Now()
	if o.DryRun != cli.DryRunClient {
		if err := o.run(ctx, file, made, shown); err != nil {
			return err
		}
	}
	shown.absent(made.NotIncluded, made.Needs)
	if o.DryRun != cli.DryRunNone {
		shown.note("the disks in the file were not read, nor their checksums verified")
	}
	if o.DryRun == cli.DryRunClient && !o.Output.Given() {
		return o.print(made)
	}
	if o.Output.Given() {
		report := backup.NewReport(o.file, size, &file.Index, made, o.Factory.Now().Sub(began))
		return o.Output.Print(report, o.Factory.IO.Out)
	}
	for _, claim := range made.Claims {
		if err := o.DryRun.Created(o.Factory.IO.Out, "persistentvolumeclaim", claim.Name); err != nil {
			return err
		}
	}
	return o.DryRun.Created(o.Factory.IO.Out, "virtualmachine.kubevirt.io", made.VM.Name)
}

// run verifies the file and makes what it becomes.
func (o *ImportOptions) run(ctx context.Context, file *backup.File, made *backup.Made, shown *progress) error {
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if o.DryRun == cli.DryRunNone {
		if err := file.Verify(ctx, shown.show); err != nil {
			return fmt.Errorf("%s: %w", o.file, err)
		}
	}
	err = backup.Import(ctx, c, file, made, backup.ImportOptions{
		DryRun: o.DryRun == cli.DryRunServer, Patience: time.Duration(o.WaitSeconds) * time.Second,
		Show: shown.show, Note: shown.note,
	})
	shown.end()
	if err != nil {
		return fmt.Errorf("import %s: %w", o.file, err)
	}
	return nil
}

// print prints the claims and the VM, as a list that kubectl takes.
func (o *ImportOptions) print(made *backup.Made) error {
	var objects []runtime.Object
	for _, claim := range made.Claims {
		objects = append(objects, claim)
	}
	o.Output.Format = "yaml"
	return o.Output.PrintAll(append(objects, made.VM), false, o.Factory.IO.Out)
}
