// Package versioncmd is `virtctl version`.
package versioncmd

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/version"
)

// Options of `virtctl version`.
type Options struct {
	Factory *cli.Factory
	Client  bool
	Output  string
}

// report has the keys of KubeVirt's `virtctl version -o json`.
type report struct {
	ClientVersion version.Info  `json:"clientVersion"`
	ServerVersion *version.Info `json:"serverVersion,omitempty"`
}

// NewCmdVersion makes the command.
func NewCmdVersion(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program and of the cluster's virtkit",
		Example: cli.Examples(f.Program, `
			virtctl version
			virtctl version --client -o json`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.Client, "client", "c", false, "Show this program's version only; no cluster is asked")
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "Output format: json, yaml")
	// The error can only be an unknown flag name.
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// Run prints the client's version even when the server's cannot be had, whose error it then returns.
func Run(ctx context.Context, o *Options) error {
	if o.Output != "" && o.Output != "json" && o.Output != "yaml" {
		return cli.UsageErrorf("unknown output format %q; use json or yaml", o.Output)
	}
	r := report{ClientVersion: version.Get()}
	var serverErr error
	if !o.Client {
		r.ServerVersion, serverErr = server(ctx, o.Factory)
	}
	if err := r.print(o); err != nil {
		return err
	}
	return serverErr
}

func server(ctx context.Context, f *cli.Factory) (*version.Info, error) {
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	info, err := c.ServerVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the cluster's version: %w", err)
	}
	return &info, nil
}

func (r report) print(o *Options) error {
	out := o.Factory.IO.Out
	switch o.Output {
	case "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	case "yaml":
		data, err := yaml.Marshal(r)
		if err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	}
	fmt.Fprintf(out, "Client Version: %s\n", r.ClientVersion.GitVersion)
	if r.ServerVersion != nil {
		fmt.Fprintf(out, "Server Version: %s\n", r.ServerVersion.GitVersion)
	}
	return nil
}
