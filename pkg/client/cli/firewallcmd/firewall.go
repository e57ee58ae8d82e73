// Package firewallcmd is `virtctl firewall`: what a guest may send on its networks.
package firewallcmd

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/firewall"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
)

// Options of `virtctl firewall show`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Name    string
}

// NewCmdFirewall makes `virtctl firewall`.
func NewCmdFirewall(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "firewall",
		Short: "Show what virtual machines may send on their networks",
		Long: `Show what virtual machines may send on their networks. A guest on a bridge sends as itself only: frames with
another MAC or address, forged answers of ARP, neighbour discovery, DHCP or a router are dropped at its tap. On networks
besides the pod network MultiNetworkPolicies hold there.`,
	})
	cmd.AddCommand(newCmdShow(f))
	return cmd
}

func newCmdShow(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewNameless()}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show from which addresses a guest may send, and how much was dropped",
		Long: `Show from which addresses a running guest may send, and how many frames were dropped since its pod began, by what was
wrong with them: mac (another MAC), arp and nd (another's address by ARP or neighbour discovery), ip (another address),
router (a router's advertisement), dhcp (a DHCP server's answer), hidden (headers that hide what is in the frame).

Where MultiNetworkPolicies hold, a second table has each of them with the frames that it let through, of those that
begin connections, to the guest (ingress) and from it (egress); and those that none of them allows.`,
		Example: cli.Examples(f.Program, `
			virtctl firewall show demo
			virtctl firewall show demo -o jsonpath='{.interfaces[*].dropped}'
			virtctl firewall show demo -o jsonpath='{.interfaces[*].policies[*].name}'`),
		Args:              cli.Args(1, 1, "the name of one VM"),
		ValidArgsFunction: completioncmd.VMIs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Show(cmd.Context(), o)
		},
	}
	o.Output.AddFlags(cmd)
	return cmd
}

// Show asks and prints.
func Show(ctx context.Context, o *Options) error {
	c, target, err := o.Factory.Machine(o.Name)
	if err != nil {
		return err
	}
	found, err := firewall.Read(ctx, c, target.Namespace, target.Name)
	if err != nil {
		return o.Factory.NotRunning(ctx, c, target, err)
	}
	if o.Output.Given() {
		return o.Output.Print(found, o.Factory.IO.Out)
	}
	return print(o.Factory.IO.Out, found)
}

func print(out io.Writer, of *firewall.Report) error {
	t := cli.NewTable(out)
	t.Row("INTERFACE", "BINDING", "MAC", "DROPPED", "MAY SEND FROM")
	for i := range of.Interfaces {
		nic := &of.Interfaces[i]
		t.Row(nic.Name, nic.Binding, orNone(nic.MAC), droppedOf(nic), sources(nic))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printPolicies(out, of)
}

// printPolicies prints the MultiNetworkPolicies that hold, and what none of them allows; nothing without any.
func printPolicies(out io.Writer, of *firewall.Report) error {
	t := cli.NewTable(out)
	any := false
	for i := range of.Interfaces {
		nic := &of.Interfaces[i]
		for _, p := range nic.Policies {
			if !any {
				if _, err := fmt.Fprintln(out); err != nil {
					return err
				}
				t.Row("INTERFACE", "MULTINETWORKPOLICY", "PASSED", "REMARK")
				any = true
			}
			t.Row(nic.Name, p.Name, counted(p.Passed), orNone(strings.Join(p.Wrong, "; ")))
		}
		if len(nic.Policies) > 0 {
			t.Row(nic.Name, "(none of them)", "dropped "+counted(nic.Denied), forgotten(nic))
		}
	}
	return t.Flush()
}

// forgotten says how many connections are not remembered; "-" for none.
func forgotten(nic *nwfilter.Interface) string {
	if nic.Forgotten == 0 {
		return "-"
	}
	return fmt.Sprintf("%d connections forgotten: there are too many", nic.Forgotten)
}

// counted returns what was counted by direction.
func counted(all []nwfilter.Counted) string {
	var out []string
	for _, c := range all {
		out = append(out, fmt.Sprintf("%d %s", c.Frames, c.Direction))
	}
	return strings.Join(out, ", ")
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// sources returns from which addresses a guest may send.
func sources(nic *nwfilter.Interface) string {
	if nic.Unguarded != "" {
		return "any: " + nic.Unguarded
	}
	var out []string
	if !nic.IPv4 {
		out = append(out, "any IPv4")
	}
	for _, text := range nic.Addresses {
		if a, err := netip.ParseAddr(text); err == nil && (a.Is4() && nic.IPv4 || a.Is6() && nic.IPv6) {
			out = append(out, text)
		}
	}
	if nic.IPv6 {
		out = append(out, "its link-local IPv6")
	} else {
		out = append(out, "any IPv6")
	}
	return strings.Join(out, ", ")
}

// droppedOf returns how many frames of which kinds were dropped.
func droppedOf(nic *nwfilter.Interface) string {
	if nic.Unguarded != "" {
		return "-"
	}
	var out []string
	for _, d := range nic.Dropped {
		if d.Frames > 0 {
			out = append(out, fmt.Sprintf("%d %s", d.Frames, d.Kind))
		}
	}
	if len(out) == 0 {
		return "0"
	}
	return strings.Join(out, ", ")
}
