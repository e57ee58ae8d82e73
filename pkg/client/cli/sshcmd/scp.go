package sshcmd

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/ssh"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/copybar"
)

// CopyOptions of `virtctl scp`.
type CopyOptions struct {
	login
	Sources   []string
	To        string
	Recursive bool
	Preserve  bool
	Quiet     bool
}

// NewCmdSCP makes the command.
func NewCmdSCP(f *cli.Factory) *cobra.Command {
	o := &CopyOptions{login: login{Factory: f}}
	cmd := &cobra.Command{
		Use:   "scp SOURCE... DESTINATION",
		Short: "Copy files to or from a virtual machine",
		Long: `Copy files to or from a virtual machine. A file in the machine is [USER@]NAME:PATH; a relative PATH is relative to the
user's home directory, and in a source it may have wildcards. Either all sources or the destination are in one
machine.

Log-in and host keys are those of "ssh". The machine's ssh server must offer sftp. With --local-ssh this machine's
own scp does the work.`,
		Example: cli.Examples(f.Program, `
			virtctl scp app.conf root@demo:/etc/app.conf
			virtctl scp -r site root@vm/demo/shop:/srv
			virtctl scp 'root@demo:/var/log/*.log' .
			virtctl scp -r --preserve root@demo:data backup`),
		Args:              cli.Args(2, -1, "a source and a destination"),
		ValidArgsFunction: completioncmd.Paths(completeMachine(f)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Sources, o.To = args[:len(args)-1], args[len(args)-1]
			if err := o.complete(cmd); err != nil {
				return err
			}
			return RunCopy(cmd.Context(), o)
		},
	}
	o.addFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.Recursive, "recursive", "r", false, "Copy directories and all that is in them")
	flags.BoolVar(&o.Preserve, "preserve", false, "Keep times and modes")
	flags.BoolVarP(&o.Quiet, "quiet", "q", false, "Show no progress")
	flags.StringArrayVarP(&o.LocalOpts, "local-ssh-opts", "t", nil,
		"An `OPTION` for this machine's scp, such as \"-o Compression=yes\" (can be repeated)")
	return cmd
}

// location is one side of a copy.
type location struct {
	remote  bool
	machine string
	path    string
}

// kinds may stand before a machine's name.
var kinds = []string{
	"vm", "vms", "virtualmachine", "virtualmachines", "vmi", "vmis", "virtualmachineinstance",
	"virtualmachineinstances",
}

// parseLocation distinguishes [USER@]NAME:PATH from a local path. A local path with a colon is written with ./ before
// it.
func parseLocation(text string) location {
	local := location{path: text}
	name, path, found := strings.Cut(text, ":")
	if !found || name == "" || runtime.GOOS == "windows" && len(name) == 1 {
		return local
	}
	bare := name[strings.LastIndexByte(name, '@')+1:]
	if kind, _, slash := strings.Cut(bare, "/"); slash {
		kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
		for _, known := range kinds {
			if kind == known {
				return location{true, name, path}
			}
		}
		return local
	}
	return location{true, name, path}
}

// RunCopy copies.
func RunCopy(ctx context.Context, o *CopyOptions) error {
	sources, to, name, err := o.locations()
	if err != nil {
		return err
	}
	m, err := o.parse(name)
	if err != nil {
		return err
	}
	if o.LocalSSH {
		program, err := o.program()
		if err != nil {
			return err
		}
		return o.runLocal(ctx, "scp", o.scpArgs(program, m, sources, to))
	}
	if to.remote {
		if err := present(sources); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGQUIT)
	defer stop()
	client, err := o.connect(ctx, m)
	if err != nil {
		return err
	}
	defer client.Close()
	copier := &ssh.Copier{Recursive: o.Recursive, Preserve: o.Preserve}
	if o.Factory.IO.ErrIsTTY && !o.Quiet {
		bar := copybar.New(o.Factory.IO.RawErr(), o.Factory.Now, o.Factory.IO.LineWidth)
		copier.Progress = bar.Show
		defer bar.End()
	}
	if err := copier.Open(client); err != nil {
		return err
	}
	defer copier.Close()
	paths := make([]string, 0, len(sources))
	for _, s := range sources {
		paths = append(paths, s.path)
	}
	if to.remote {
		return copier.Upload(ctx, paths, to.path)
	}
	return copier.Download(ctx, paths, to.path)
}

// present refuses sources that are not here before anything is copied.
func present(sources []location) error {
	for _, s := range sources {
		if _, err := os.Stat(s.path); err != nil {
			return &cli.ExitError{Code: cli.ExitUsage, Err: errors.New(cli.WhyUnreadable(s.path, err))}
		}
	}
	return nil
}

// locations sorts out which side is the machine.
func (o *CopyOptions) locations() (sources []location, to location, machine string, err error) {
	to = parseLocation(o.To)
	machine = to.machine
	for i, text := range o.Sources {
		s := parseLocation(text)
		switch {
		case s.remote && to.remote:
			return nil, to, "", cli.UsageErrorf("%q and %q are both in a machine; one side must be here", text, o.To)
		case !s.remote && !to.remote:
			return nil, to, "", cli.UsageErrorf("neither %q nor %q is in a machine: write NAME:PATH", text, o.To)
		case s.remote && i > 0 && s.machine != machine:
			return nil, to, "", cli.UsageErrorf("%q and %q are different machines", o.Sources[0], text)
		case s.remote:
			machine = s.machine
		}
		sources = append(sources, s)
	}
	return sources, to, machine, nil
}

// scpArgs returns the arguments of this machine's scp.
func (o *CopyOptions) scpArgs(program string, m machine, sources []location, to location) []string {
	args := o.localArgs(program, m)
	if o.Recursive {
		args = append(args, "-r")
	}
	if o.Preserve {
		args = append(args, "-p")
	}
	if o.Quiet {
		args = append(args, "-q")
	}
	for _, p := range append(sources, to) {
		if p.remote {
			p.path = destination(m) + ":" + p.path
		}
		args = append(args, p.path)
	}
	return args
}
