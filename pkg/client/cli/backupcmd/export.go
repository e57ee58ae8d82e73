// Package backupcmd is `virtctl export` and `virtctl import`.
package backupcmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/client/action/part"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/copybar"
	"github.com/virtkit/virtkit/pkg/client/printable"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// ExportOptions are the options of `virtctl export`.
type ExportOptions struct {
	Factory   *cli.Factory
	Output    *cli.Output
	Quiet     bool
	Lifetime  time.Duration
	Readiness time.Duration

	kind, name, file string
}

// What the dashboard has of the command.
const (
	// Pause is between two tries of a request.
	Pause = 2 * time.Second
	// NoteEach is how often it is noted how far an export is.
	NoteEach = 5 * time.Second
	// Taking is how long to wait for a snapshot, which fails by itself before.
	Taking = 10 * time.Minute
	// DefaultLifetime is how long what is made for an export stays at most.
	DefaultLifetime = 12 * time.Hour
	// DefaultReadiness is how long to wait until the disks can be read.
	DefaultReadiness = 2 * time.Minute
)

// NewCmdExport makes `virtctl export`.
func NewCmdExport(f *cli.Factory) *cobra.Command {
	o := &ExportOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "export (VM | snapshot/NAME) FILE",
		Short: "Write a virtual machine with its disks into one file",
		Long: `Write a virtual machine, or the one of a snapshot, with its disks into one file, of which "virtctl import" makes a
virtual machine on any cluster.

The disks of a VM that runs are those of a snapshot, which is there for the export and is deleted after it, also when
the export fails or is interrupted. A VM that is stopped must not be started meanwhile. What is in the file are the
VM's manifest, with its instance type and preference written out, and its disks on claims. What it has besides is said:
file systems on claims, the state of a TPM, and Secrets, ConfigMaps and networks that it names.

The file is a tar with the disks as disks/VOLUME.img.gz, and checksums. It is .FILE.part until it is whole. When this
program is killed, the same command goes on with .FILE.part and with the snapshot; after an error or an interrupt both
are deleted.`,
		Example: cli.Examples(f.Program, `
			virtctl export demo demo.tar
			virtctl export snapshot/before-upgrade demo.tar
			tar -xOf demo.tar disks/root.img.gz | gunzip | sha256sum`),
		Args:              cli.Args(2, 2, "a VM or snapshot/NAME, and the file to write"),
		ValidArgsFunction: completeExport(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[1]
			if err := o.complete(args[0]); err != nil {
				return err
			}
			return Export(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.Quiet, "quiet", "q", false, "Show no progress")
	flags.DurationVar(&o.Lifetime, "ttl", DefaultLifetime,
		"The longest that the export may take; what is there for it is deleted then, whatever happens to this program")
	flags.DurationVar(&o.Readiness, "readiness-timeout", DefaultReadiness,
		"How long to wait until the disks can be read")
	o.Output.AddFlags(cmd)
	return cmd
}

// completeExport completes VMs and snapshots, and after them files.
func completeExport(f *cli.Factory) cobra.CompletionFunc {
	machines := completioncmd.VMs(f, 1)
	snapshots := completioncmd.Prefixed("snapshot/", completioncmd.Snapshots(f, -1))
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 1:
			return nil, cobra.ShellCompDirectiveDefault
		case len(args) > 1:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case strings.HasPrefix(word, "snapshot/"):
			return snapshots(cmd, nil, word)
		}
		return machines(cmd, args, word)
	}
}

func (o *ExportOptions) complete(what string) error {
	o.kind, o.name = exports.KindVM, what
	switch kind, name, cut := strings.Cut(what, "/"); {
	case !cut:
	case kind == "vm":
		o.name = name
	case kind == "snapshot" || kind == "vmsnapshot":
		o.kind, o.name = exports.KindSnapshot, name
	default:
		return cli.UsageErrorf("%q: a VM or a snapshot is exported; write vm/NAME or snapshot/NAME", what)
	}
	if problems := content.IsDNS1123Subdomain(o.name); len(problems) > 0 {
		return cli.UsageErrorf("%q is not a name: %s", o.name, strings.Join(problems, "; "))
	}
	switch {
	case o.file == "-" || o.file == "":
		return cli.UsageErrorf("name the file to write; a backup cannot be written to a pipe, for its index is at " +
			"its beginning")
	case o.Lifetime <= 0:
		return cli.UsageErrorf("--ttl: %s is over already; give a time such as 30m", o.Lifetime)
	}
	if err := CheckFile(o.Factory.Program, o.file, o.kind, o.name); err != nil {
		return cli.UsageErrorf("%s: %s", o.file, err)
	}
	return o.Output.Validate()
}

// CheckFile returns an error with the command to use for a file whose name says that it is of another format than a
// backup. kind and name are of what is exported.
func CheckFile(program, file, kind, name string) error {
	download := func(format string) string {
		if kind == exports.KindSnapshot {
			return fmt.Sprintf("%s vmexport download %s --snapshot=%[2]s --format=%[3]s --output=%[4]s", program, name,
				format, file)
		}
		return fmt.Sprintf("%s vmexport download %s --vm=%[2]s --format=%[3]s --output=%[4]s", program, name, format,
			file)
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".ova":
		return fmt.Errorf("a backup is no OVA; `%s` writes one, of a VM that is stopped or of a snapshot",
			download("ova"))
	case ".qcow2":
		return fmt.Errorf("a backup is a VM with all of its disks, and no qcow2 image; `%s --volume=CLAIM` "+
			"downloads one disk of a VM that is stopped, or of a snapshot", download("qcow2"))
	}
	return nil
}

// Export writes the file.
func Export(ctx context.Context, o *ExportOptions) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	to, err := backup.NewPart(o.file)
	if errors.Is(err, part.ErrBusy) {
		return err
	}
	if err != nil {
		return cli.UsageErrorf("%s", cli.WhyUnwritable(o.file, err))
	}
	shown := newProgress(o.Factory, o.Quiet)
	defer shown.end()
	began := o.Factory.Now()
	done, err := backup.Write(ctx, c, to, backup.ExportOptions{
		Namespace: namespace, Kind: o.kind, Name: o.name,
		Temporary: backup.Temporary(o.name, o.Factory.RandomName(5)),
		Lifetime:  o.Lifetime, Readiness: o.Readiness, Taking: Taking, Pause: Pause, NoteEach: NoteEach,
		Now:    began,
		Report: shown.report, Show: shown.show, Note: shown.note,
	})
	shown.end()
	if err != nil {
		return err
	}
	shown.absent("not in the file", done.Index.NotIncluded, done.Needs)
	report := backup.NewReport(o.file, done.Bytes, &done.Index, nil, o.Factory.Now().Sub(began))
	report.Needs = done.Needs
	if o.Output.Given() {
		return o.Output.Print(report, o.Factory.IO.Out)
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "%s has VM %s/%s with %s: %d bytes\n", o.file, namespace, done.Index.Name,
		counted(report.Disks), done.Bytes)
	return err
}

// counted says how many disks there are, and which.
func counted(disks []backup.ReportedDisk) string {
	var volumes []string
	for i := range disks {
		volumes = append(volumes, disks[i].Volume)
	}
	switch len(disks) {
	case 0:
		return "no disk"
	case 1:
		return "the disk " + volumes[0]
	}
	return "the disks " + strings.Join(volumes, ", ")
}

// progress shows on a terminal what is waited for and how far a disk is; notes are said everywhere.
type progress struct {
	factory *cli.Factory
	bar     *copybar.Bar
	quiet   bool
	said    string
}

func newProgress(f *cli.Factory, quiet bool) *progress {
	return &progress{
		factory: f, quiet: quiet || !f.IO.ErrIsTTY, bar: copybar.New(f.IO.RawErr(), f.Now, f.IO.LineWidth),
	}
}

func (p *progress) report(text string) {
	if p.quiet || text == p.said || text == "" {
		return
	}
	p.said = text
	p.bar.End()
	fmt.Fprintf(p.factory.IO.ErrOut, "waiting: %s\n", text)
}

func (p *progress) show(name string, done, total int64) {
	if !p.quiet {
		p.bar.Show(name, done, total)
	}
}

func (p *progress) end() { p.bar.End() }

func (p *progress) note(text string) {
	p.bar.End()
	fmt.Fprintf(p.factory.IO.ErrOut, "note: %s\n", printable.Line(text))
}

// absent says what the VM had or needs that is not in the file, or is otherwise; how begins each.
func (p *progress) absent(how string, notIncluded, needs []string) {
	for _, what := range notIncluded {
		p.note(how + ": " + printable.Line(what))
	}
	if len(needs) > 0 {
		p.note("not in the file, and the VM names them: " + printable.Line(strings.Join(needs, ", ")))
	}
}
