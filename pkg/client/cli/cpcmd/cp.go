// Package cpcmd is `virtctl cp`: files to and from a guest, through the guest agent.
package cpcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action/guest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/copybar"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
)

// Options of `virtctl cp`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Sources []string
	To      string
	Quiet   bool

	plan plan
}

// NewCmdCopy makes the command.
func NewCmdCopy(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "cp SOURCE... DESTINATION",
		Short: "Copy files to or from a virtual machine through its guest agent",
		Long: `Copy files to or from a virtual machine through its guest agent. Neither network nor login is needed.

A file in the machine is NAME:PATH, also NAMESPACE/NAME:PATH or vmi/NAME:PATH, and PATH begins at the root or, in
Windows, with a drive. Either all sources or the destination are in one machine; the other side is a file here, or -
for standard input or output. Several sources need a directory to go to. A file here with a colon in its name is
written with ./ before it.

The file gets its name when all of it has arrived and its checksum is right; until then, and when the copy is
interrupted, what was there stays. Its permission bits are copied, owner and times are not. In a guest without
/bin/sh, such as Windows, it is written under its name at once, and has the agent's mode.

Directories are not copied: pack one with tar and copy that, or use "scp -r".`,
		Example: cli.Examples(f.Program, `
			virtctl cp app.conf demo:/etc/app.conf
			virtctl cp demo:/var/log/syslog .
			virtctl cp a b shop/demo:/srv/
			tar c site | virtctl cp - demo:/tmp/site.tar
			virtctl cp demo:/etc/os-release -`),
		Args:              cli.Args(2, -1, "a source and a destination"),
		ValidArgsFunction: completioncmd.Paths(completioncmd.VMIs(f, 1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Sources, o.To = args[:len(args)-1], args[len(args)-1]
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "Show no progress")
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) validate() (err error) {
	if o.plan, err = parse(o.Sources, o.To); err != nil {
		return err
	}
	if o.Output.Given() && o.plan.direction == copyfile.Pull && o.plan.to == "-" {
		return cli.UsageErrorf("-o and a copy to - cannot both have standard output")
	}
	return o.Output.Validate()
}

// Run copies.
func Run(ctx context.Context, o *Options) error {
	if err := o.checkHere(); err != nil {
		return err
	}
	c, target, err := o.Factory.Machine(o.plan.machine)
	if err != nil {
		return err
	}
	open := func(ctx context.Context) (*stream.Conn, error) { return c.CopyFile(ctx, target.Namespace, target.Name) }
	began := o.Factory.Now()
	files, err := o.copyAll(ctx, open)
	if o.Output.Given() && len(files) > 0 {
		took := o.Factory.Now().Sub(began)
		report := guest.NewCopyReport(target.Namespace, target.Name, o.plan.direction, files, took)
		if printed := o.Output.Print(report, o.Factory.IO.Out); printed != nil {
			return printed
		}
	}
	return o.Factory.NotRunning(ctx, c, target, err)
}

// checkHere refuses what is wrong about the files of this machine before anything is copied.
func (o *Options) checkHere() error {
	if o.plan.direction == copyfile.Pull {
		info, err := os.Stat(o.plan.to)
		isDir := err == nil && info.IsDir()
		switch wanted := len(o.plan.sources) > 1 || os.IsPathSeparator(o.plan.to[len(o.plan.to)-1]); {
		case isDir || !wanted:
			return nil
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s is not a directory: nothing here has that name; make it first: mkdir %[1]s",
				o.plan.to)
		}
		return fmt.Errorf("%s is not a directory; name one, or copy one file to a file", o.plan.to)
	}
	var failed []error
	for _, source := range o.plan.sources {
		if source == "-" {
			continue
		}
		info, err := os.Stat(source)
		if err != nil {
			err = &cli.ExitError{Code: cli.ExitUsage, Err: unreadable(source, err)}
		}
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a directory, and cp copies files; pack it with tar and copy that, or use "+
				"`%s scp -r`", source, o.Factory.Program)
		}
		if err == nil && !info.Mode().IsRegular() { // to open a pipe would wait for its writer
			err = fmt.Errorf("%s is not a regular file; give - to copy standard input", source)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return utilerrors.NewAggregate(failed)
}

// copyAll copies one file after the other, and goes on after one that cannot be copied for what it is.
func (o *Options) copyAll(ctx context.Context, open guest.Opener) (files []guest.CopiedFile, err error) {
	show := func(string, int64, int64) {}
	if o.Factory.IO.ErrIsTTY && !o.Quiet {
		bar := copybar.New(o.Factory.IO.RawErr(), o.Factory.Now, o.Factory.IO.LineWidth)
		defer bar.End()
		show = bar.Show
	}
	var failed []error
	for _, source := range o.plan.sources {
		one := o.push
		if o.plan.direction == copyfile.Pull {
			one = o.pull
		}
		file, err := one(ctx, open, source, show)
		var inGuest *guest.FileError
		var here *hereError
		switch {
		case err == nil:
			files = append(files, file)
		case errors.As(err, &inGuest), errors.As(err, &here):
			failed = append(failed, err)
		default:
			return files, cli.Joined(append(failed, err)...)
		}
	}
	return files, cli.Joined(failed...)
}

// shower gets how far a file is.
type shower func(name string, done, total int64)

func (o *Options) push(ctx context.Context, open guest.Opener, source string, show shower) (guest.CopiedFile, error) {
	p := guest.Push{Path: o.plan.to, Source: o.Factory.IO.In}
	p.Name, p.IntoDirectory = o.plan.push(source)
	shown, total := source, int64(-1)
	if source == "-" {
		shown = "standard input"
	} else {
		file, err := os.Open(source)
		if err != nil {
			return guest.CopiedFile{}, unreadable(source, err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return guest.CopiedFile{}, unreadable(source, err)
		}
		p.Source, shown = file, p.Name
		if info.Mode().IsRegular() {
			mode := uint32(info.Mode().Perm())
			p.Mode, total = &mode, info.Size()
		}
	}
	show(shown, 0, total)
	p.Written = func(bytes int64) { show(shown, bytes, total) }
	copied, err := p.Run(ctx, open)
	if err != nil {
		if local := (*guest.LocalError)(nil); errors.As(err, &local) && source != "-" {
			err = unreadable(source, local.Err)
		}
		return guest.CopiedFile{}, err
	}
	if copied.InPlace {
		fmt.Fprintf(o.Factory.IO.ErrOut, "warning: %s was written under its name at once, for the guest has no "+
			"/bin/sh; its mode is what the guest agent gives\n", copied.Path)
	}
	return copiedFile(source, copied.Path, copied), nil
}

func (o *Options) pull(ctx context.Context, open guest.Opener, source string, show shower) (guest.CopiedFile, error) {
	name := copyfile.Base(source)
	p, target, total := guest.Pull{Path: source}, o.plan.to, int64(-1)
	if target == "-" {
		p.To = o.Factory.IO.RawOut()
	} else if info, err := os.Stat(target); err == nil && info.IsDir() {
		if !filepath.IsLocal(name) {
			return guest.CopiedFile{}, &guest.FileError{
				Message: fmt.Sprintf("%s: %q cannot be the name of a file here; name one", source, name),
			}
		}
		target = filepath.Join(target, name)
	}
	p.File = target
	p.Opened = func(opened copyfile.Opened) {
		if opened.Size != nil {
			total = *opened.Size
		}
		show(name, 0, total)
	}
	p.Read = func(bytes int64) { show(name, bytes, total) }
	copied, err := p.Run(ctx, open)
	if err != nil {
		if local := (*guest.LocalError)(nil); errors.As(err, &local) && target != "-" {
			err = unwritable(target, local.Err)
		}
		return guest.CopiedFile{}, err
	}
	if copied.Changed {
		fmt.Fprintf(o.Factory.IO.ErrOut, "warning: %s has changed in the guest while it was copied\n", source)
	}
	return copiedFile(source, target, copied), nil
}

func copiedFile(source, target string, copied guest.Copied) guest.CopiedFile {
	return guest.CopiedFile{
		Source: source, Target: target, Bytes: copied.Bytes, SHA256: copied.SHA256, Verified: copied.Verified,
		Changed: copied.Changed, InPlace: copied.InPlace,
	}
}
