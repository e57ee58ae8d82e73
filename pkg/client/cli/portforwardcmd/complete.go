package portforwardcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// completionTime bounds a completion: the user is in the middle of a line.
const completionTime = 2 * time.Second

// complete gives the machines, then the ports that the instance declares, else ports that guests often have.
func complete(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			kind, rest, typed := strings.Cut(toComplete, "/")
			if !typed {
				return completioncmd.VMIs(f, 1)(cmd, nil, toComplete)
			}
			list := completioncmd.VMIs
			if strings.HasPrefix(kind, "vm") && !strings.HasPrefix(kind, "vmi") {
				list = completioncmd.VMs
			}
			found, directive := list(f, 1)(cmd, nil, rest)
			for i := range found {
				found[i] = kind + "/" + found[i]
			}
			return found, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		var out []string
		for _, port := range ports(ctx, f, args[0]) {
			if strings.HasPrefix(port, toComplete) {
				out = append(out, port)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// usual are what guests often serve; the local side is one that needs no rights.
var usual = []string{":22\tssh", "8080:80\thttp", "8443:443\thttps", ":3389\trdp"}

func ports(ctx context.Context, f *cli.Factory, name string) []string {
	declared, err := declaredPorts(ctx, f, name)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	if len(declared) == 0 {
		return usual
	}
	return declared
}

func declaredPorts(ctx context.Context, f *cli.Factory, name string) ([]string, error) {
	target, err := f.Target(name)
	if err != nil {
		return nil, err
	}
	var c *client.Client
	if c, err = f.Client(); err != nil {
		return nil, err
	}
	vmi, err := c.VMI(ctx, target.Namespace, target.Name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		for _, p := range nic.Ports {
			text := fmt.Sprintf(":%d", p.Port)
			if strings.EqualFold(p.Protocol, "udp") {
				text = "udp/" + text
			}
			out = append(out, cobra.CompletionWithDesc(text, p.Name))
		}
	}
	return out, nil
}

// completeSessions gives the IDs of what runs in the background.
func completeSessions(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		r, err := registry(f)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		sessions, err := r.List(ctx)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		var out []string
		for _, s := range sessions {
			given := false
			for _, arg := range args {
				given = given || arg == s.Name
			}
			if !given && strings.HasPrefix(s.Name, toComplete) {
				out = append(out, cobra.CompletionWithDesc(s.Name, strings.Join(describe(s), ", ")))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
