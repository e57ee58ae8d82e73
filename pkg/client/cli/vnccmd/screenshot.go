package vnccmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/vnc"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// ScreenshotOptions of `virtctl vnc screenshot`.
type ScreenshotOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	Name    string

	File       string
	MoveCursor bool
	Timeout    cli.Timeout
}

// NewCmdScreenshot makes the command.
func NewCmdScreenshot(f *cli.Factory) *cobra.Command {
	o := &ScreenshotOptions{
		Factory: f, Output: cli.NewOutput(),
		Timeout: cli.Timeout{Duration: 30 * time.Second, Unit: time.Second},
	}
	cmd := &cobra.Command{
		Use:   "screenshot NAME",
		Short: "Take a picture of the screen of a virtual machine",
		Long: `Take a picture of the screen of a virtual machine, as PNG. Whoever is looking at the screen is not disturbed.

A guest that has put its screen to sleep can be woken with --move-cursor.`,
		Example: cli.Examples(f.Program, `
			virtctl vnc screenshot demo -f demo.png
			virtctl vnc screenshot demo -f - | display`),
		Args:              cli.Args(1, 1, "the name of one VM"),
		ValidArgsFunction: completioncmd.VMIs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			return RunScreenshot(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.File, "file", "f", "", "`FILE` for the picture; - is stdout")
	flags.BoolVarP(&o.MoveCursor, "move-cursor", "m", false,
		"Move the pointer first, to wake a screen that has gone dark")
	flags.Var(&o.Timeout, "timeout", "How long the picture may take; a bare number is seconds, 0 is no limit")
	o.Output.AddFlags(cmd)
	if err := cmd.MarkFlagFilename("file", "png"); err != nil {
		panic(err) // no such flag: a programming error
	}
	return cmd
}

func (o *ScreenshotOptions) validate() error {
	switch {
	case o.File == "":
		return cli.UsageErrorf("say where to with --file FILE; --file - is stdout")
	case o.File == "-" && o.Output.Given():
		return cli.UsageErrorf("-o and --file - would both go to stdout")
	case o.File == "-" && o.Factory.IO.OutIsTTY:
		return cli.UsageErrorf("a picture is not for a terminal: redirect stdout, or use --file FILE")
	}
	return o.Output.Validate()
}

// RunScreenshot takes the picture.
func RunScreenshot(ctx context.Context, o *ScreenshotOptions) error {
	c, target, err := o.Factory.Machine(o.Name)
	if err != nil {
		return err
	}
	ctx, cancel := o.Timeout.Limit(ctx)
	defer cancel()
	picture, err := c.Screenshot(ctx, target.Namespace, target.Name, o.MoveCursor)
	if apierrors.IsNotFound(err) {
		if err = o.Factory.NotRunning(ctx, c, target, err); !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err != nil {
		return o.explain(ctx, target, err)
	}
	defer picture.Close()
	if o.File == "-" {
		_, err := vnc.Copy(o.Factory.IO.RawOut(), picture)
		return o.explain(ctx, target, err)
	}
	p, err := vnc.Save(o.File, picture)
	if err != nil {
		return o.explain(ctx, target, err)
	}
	if o.Output.Given() {
		return o.Output.Print(vnc.NewScreenshotReport(target.Namespace, target.Name, o.File, p), o.Factory.IO.Out)
	}
	return nil
}

func (o *ScreenshotOptions) explain(ctx context.Context, t cli.Target, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%w after %s", action.ErrTimeout, o.Timeout.Duration)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("screenshot of %s/%s: %w", t.Namespace, t.Name, err)
}
