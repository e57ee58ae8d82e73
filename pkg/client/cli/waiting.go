package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

// Waiting is how long a command waits for what it asked for: --wait and --timeout.
type Waiting struct {
	Wait bool
	// Timeout is the most that it waits; 0 is no limit.
	Timeout Timeout
}

// AddFlags registers the flags. until says what --wait waits for.
func (w *Waiting) AddFlags(cmd *cobra.Command, until string, limit time.Duration) {
	w.Timeout = Timeout{Duration: limit, Unit: time.Second}
	cmd.Flags().BoolVar(&w.Wait, "wait", false, "Wait until "+until)
	cmd.Flags().Var(&w.Timeout, "timeout", "How long to wait with --wait; 0 is no limit")
}

// CheckWait returns a usage error if --wait is given for a dry run, which changes nothing.
func (w *Waiting) CheckWait(d DryRun) error {
	if w.Wait && d != DryRunNone {
		return UsageErrorf("--wait cannot be given with --dry-run: nothing will change")
	}
	return nil
}

// Until does wait within the timeout. A terminal shows what is waited for.
func (w *Waiting) Until(
	ctx context.Context, streams *IOStreams, what string, wait func(ctx context.Context) error,
) error {
	return w.Stages(ctx, streams, what, func(ctx context.Context, _ func(string)) error { return wait(ctx) })
}

// Stages does wait within the timeout. A terminal shows what is waited for and the stage that wait reports last.
func (w *Waiting) Stages(
	ctx context.Context, streams *IOStreams, what string,
	wait func(ctx context.Context, report func(stage string)) error,
) error {
	ctx, cancel := w.Timeout.Limit(ctx)
	defer cancel()
	var shown atomic.Value
	shown.Store(what)
	return streams.WhileStage(func() string { return shown.Load().(string) }, func() error {
		return wait(ctx, func(stage string) { shown.Store(what + ", " + stage) })
	})
}

// Interrupted prints on standard error that what was asked for goes on without this program, if err is that the user
// has ended it.
func (s *IOStreams) Interrupted(err error, format string, args ...any) {
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(s.ErrOut, "interrupted: "+format+"\n", args...)
	}
}

// Requested prints, if err is that the user has ended the command, that what was requested goes on, or, unless the
// server has accepted it, that it may.
func (s *IOStreams) Requested(err error, accepted bool, what string, args ...any) {
	said := " may have been requested"
	if accepted {
		said = " was requested, and goes on"
	}
	s.Interrupted(err, what+said, args...)
}
