// Package usbredircmd is `virtctl usbredir`: a USB device of this machine in a guest.
package usbredircmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/usbredir"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/stream"
)

// connectTime is how long usbredirect may take to connect.
const connectTime = time.Minute

// Options of `virtctl usbredir`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Device  string
	Name    string

	NoLaunch bool
}

// NewCmdUSBRedir makes the command.
func NewCmdUSBRedir(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "usbredir {VENDOR:PRODUCT|BUS-DEVICE} NAME",
		Short: "Bring a USB device of this machine into a virtual machine",
		Long: `Bring a USB device of this machine into a virtual machine, until interrupted.

The device is named as lsusb shows it. usbredirect (Debian: package usbredirect) takes it from this machine,
which needs the right to: mostly that is root's. The machine needs spec.domain.devices.clientPassthrough: {},
and takes four devices.

With --no-launch virtctl prints the local port for a usbredirect that you start yourself, and ends when that
does.`,
		Example: cli.Examples(f.Program, `
			virtctl usbredir 0951:1666 demo
			virtctl usbredir 1-3 demo
			virtctl usbredir --no-launch demo`),
		Args: func(cmd *cobra.Command, args []string) error {
			if o.NoLaunch {
				return cli.Args(1, 1, "the name of one VM")(cmd, args)
			}
			return cli.Args(2, 2, "a USB device and the name of one VM")(cmd, args)
		},
		ValidArgsFunction: func(
			cmd *cobra.Command, args []string, toComplete string,
		) ([]string, cobra.ShellCompDirective) {
			if !o.NoLaunch && len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completioncmd.VMIs(f, 2)(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[len(args)-1]
			if !o.NoLaunch {
				o.Device = args[0]
			}
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().
		BoolVar(&o.NoLaunch, "no-launch", false, "Do not start usbredirect: print the port for one, as ADDRESS:PORT")
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) validate() error {
	if !o.NoLaunch {
		if err := usbredir.CheckDevice(o.Device); err != nil {
			return cli.UsageErrorf("%v", err)
		}
		if o.Output.Given() {
			return cli.UsageErrorf("-o needs --no-launch: a device is nothing to print")
		}
	}
	return o.Output.Validate()
}

// Run redirects the device until the user, usbredirect or the guest ends it.
func Run(ctx context.Context, o *Options) error {
	path := ""
	if !o.NoLaunch {
		var err error
		if path, err = exec.LookPath(usbredir.Program); err != nil {
			return fmt.Errorf("%s is not installed, which takes the device from this machine; install it (Debian: "+
				"package usbredirect), or use --no-launch", usbredir.Program)
		}
	}
	c, target, err := o.Factory.Machine(o.Name)
	if err != nil {
		return err
	}
	guest, err := c.USBRedir(ctx, target.Namespace, target.Name)
	if apierrors.IsNotFound(err) {
		if err = o.Factory.NotRunning(ctx, c, target, err); !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err != nil {
		return o.explain(target, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(fmt.Errorf("listen for %s: %w", usbredir.Program, err), guest.Close())
	}
	if o.NoLaunch {
		if err := o.print(target, l.Addr().(*net.TCPAddr)); err != nil {
			return errors.Join(err, l.Close(), guest.Close())
		}
		return o.explain(target, usbredir.Serve(ctx, l, guest))
	}
	return o.launch(ctx, path, target, l, guest)
}

// launch starts usbredirect and serves it until it ends.
func (o *Options) launch(
	ctx context.Context, path string, target cli.Target, l net.Listener, guest *stream.Conn,
) error {
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(connectTime)); err != nil {
		return errors.Join(err, l.Close(), guest.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var output bytes.Buffer
	program := exec.CommandContext(ctx, path, usbredir.Args(o.Device, port)...)
	program.Stdout, program.Stderr = &output, &output
	if err := program.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", usbredir.Program, err), l.Close(), guest.Close())
	}
	if o.Factory.IO.ErrIsTTY {
		fmt.Fprintf(o.Factory.IO.ErrOut, "%s is in %s until you press Ctrl-C.\n", o.Device, target.Name)
	}
	var ended sync.WaitGroup
	var failed error
	ended.Go(func() {
		failed = program.Wait()
		cancel()
	})
	err := usbredir.Serve(ctx, l, guest)
	cancel()
	ended.Wait()
	var exit *exec.ExitError
	if errors.As(failed, &exit) && exit.Exited() {
		return fmt.Errorf("%s: %w: %s", usbredir.Program, failed, strings.TrimSpace(output.String()))
	}
	return o.explain(target, err)
}

func (o *Options) print(target cli.Target, address *net.TCPAddr) error {
	if o.Output.Given() {
		return o.Output.Print(usbredir.NewReport(target.Namespace, target.Name, address.IP.String(), address.Port),
			o.Factory.IO.Out)
	}
	_, err := fmt.Fprintln(o.Factory.IO.Out, address)
	return err
}

func (o *Options) explain(target cli.Target, err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case stream.NotYet(err):
		return fmt.Errorf("USB of %s/%s: %w; `%s start %s%s` starts it", target.Namespace, target.Name, err,
			o.Factory.Program, target.Name, o.Factory.InNamespace(target.Namespace))
	}
	return fmt.Errorf("USB of %s/%s: %w", target.Namespace, target.Name, err)
}
