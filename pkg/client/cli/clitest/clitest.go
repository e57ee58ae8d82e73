// Package clitest runs a command of virtctl in a test, as main does, with streams and an environment that the test
// gives.
package clitest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Command is a command to be run.
type Command struct {
	// New makes it.
	New func(*cli.Factory) *cobra.Command
	// Kubeconfig is the path of one. Without, its namespace is team-a, and the test fails if it asks the cluster.
	Kubeconfig string
	Stdin      string
	Env        map[string]string
	// ErrIsTTY has a terminal read stderr.
	ErrIsTTY bool
}

// limit is the longest that a command may take.
const limit = time.Minute

// Run runs it with arguments.
func (c Command) Run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return c.RunContext(t.Context(), t, args...)
}

// RunContext runs it with arguments until ctx ends.
func (c Command) RunContext(ctx context.Context, t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := &cli.IOStreams{In: strings.NewReader(c.Stdin), Out: &out, ErrOut: &errOut, ErrIsTTY: c.ErrIsTTY}
	f := cli.NewFactory("virtctl", streams, func(name string) string { return c.Env[name] })
	cmd := c.New(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	kubeconfig, nobody := c.Kubeconfig, clienttest.New(t)
	if kubeconfig == "" {
		kubeconfig = nobody.Kubeconfig("team-a")
	}
	cmd.SetArgs(append([]string{"--kubeconfig", kubeconfig}, args...))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = cmd.ExecuteContext(ctx)
	f.IO.Flush()
	for _, r := range nobody.Asked("") {
		t.Errorf("%q asks the cluster: %s %s", args, r.Method, r.URL)
	}
	return out.String(), errOut.String(), err
}
