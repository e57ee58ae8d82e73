package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// RefuseEmpty refuses empty values of flags that choose what a command is about, such as those of variables that are
// not set: they would mean another object than the user does.
func RefuseEmpty(cmd *cobra.Command, flags ...string) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range flags {
			if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
				return UsageErrorf("--%s: it is empty; give a value, or leave it out", name)
			}
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
}

// DryRun is the value of --dry-run. `--dry-run` alone is server, as KubeVirt's flag, a boolean, is; true and
// false are understood for the same reason.
type DryRun string

const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

// AddFlag registers --dry-run on cmd.
func (d *DryRun) AddFlag(cmd *cobra.Command) {
	*d = DryRunNone
	cmd.Flags().
		Var(d, "dry-run", "none; client: show what would be sent; server: have the server check it and change nothing")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(DryRunServer)
	CompleteFlag(cmd, "dry-run", string(DryRunNone), string(DryRunClient), string(DryRunServer))
}

// String implements pflag.Value.
func (d *DryRun) String() string { return string(*d) }

// Type implements pflag.Value.
func (*DryRun) Type() string { return "none|client|server" }

// Set implements pflag.Value.
func (d *DryRun) Set(s string) error {
	switch v := DryRun(strings.ToLower(s)); v {
	case DryRunNone, DryRunClient, DryRunServer:
		*d = v
	case "true":
		*d = DryRunServer
	case "false":
		*d = DryRunNone
	default:
		return fmt.Errorf("%q is not one of none, client, server", s)
	}
	return nil
}

// Created prints that an object of a kind, "KIND.GROUP", was created.
func (d DryRun) Created(out io.Writer, kind, name string) error {
	_, err := fmt.Fprintf(out, "%s/%s created%s\n", kind, name, d.Suffix())
	return err
}

// Suffix returns the end of a message: " (server dry run)", as kubectl's do, or nothing.
func (d DryRun) Suffix() string {
	switch d {
	case DryRunClient:
		return " (dry run)"
	case DryRunServer:
		return " (server dry run)"
	}
	return ""
}

// Seconds is a flag that takes a number of seconds, as kubectl's and KubeVirt's do, or a duration such as
// 1m30s. Its value is in seconds.
type Seconds int64

// String implements pflag.Value.
func (s *Seconds) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type implements pflag.Value.
func (*Seconds) Type() string { return "seconds" }

// Set implements pflag.Value.
func (s *Seconds) Set(text string) error {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 && n != -1 {
			return fmt.Errorf("%s is negative", text)
		}
		*s = Seconds(n)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is neither a number of seconds nor a duration such as 30s or 2m", text)
	}
	*s = Seconds(math.Ceil(d.Seconds()))
	return nil
}

// Timeout is a flag that takes a duration. A bare number counts in Unit, for flags that KubeVirt or kubectl
// define as a number of minutes or seconds. What 0 means is the command's to say.
type Timeout struct {
	Duration time.Duration
	Unit     time.Duration
	// Signed allows negative values.
	Signed bool
}

// String implements pflag.Value.
func (t *Timeout) String() string { return t.Duration.String() }

// Type implements pflag.Value.
func (*Timeout) Type() string { return "duration" }

// Set implements pflag.Value.
func (t *Timeout) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, numErr := strconv.ParseInt(text, 10, 32); numErr == nil {
		d, err = time.Duration(n)*t.Unit, nil
	}
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 90s or 5m", text)
	}
	if d < 0 && !t.Signed {
		return fmt.Errorf("%q is negative", text)
	}
	t.Duration = d
	return nil
}

// Limit returns a context that ends when the timeout has passed, or with ctx when the timeout is 0 or less.
func (t *Timeout) Limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.Duration <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, t.Duration)
}

// Count is a flag that takes a number from 0 on.
type Count uint32

// String implements pflag.Value.
func (c *Count) String() string { return strconv.FormatUint(uint64(*c), 10) }

// Type implements pflag.Value. It is pflag's own, so that 0 is not shown as a default.
func (*Count) Type() string { return "uint32" }

// Set implements pflag.Value.
func (c *Count) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a number from 0 to %d", text, uint32(math.MaxUint32))
	}
	*c = Count(n)
	return nil
}

// CompleteFlag completes a flag with fixed values.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // no such flag, or registered twice: a programming error
	}
}
