// Package portforwardcmd is `virtctl port-forward`: ports of guests at this machine, for as long as they are wanted,
// with list and stop for those that run in the background.
package portforwardcmd

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

const (
	// defaultAddress is where ports are opened.
	defaultAddress = "127.0.0.1"
	// defaultSocks is what --socks alone means.
	defaultSocks     = "127.0.0.1:" + defaultSocksPort
	defaultSocksPort = "1080"
)

// Options of `virtctl port-forward`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	// Name is the target as it was given, empty with --socks alone.
	Name  string
	Ports []forward.Port

	Addresses  []string
	Stdio      bool
	Socks      string
	Background bool
	Wait       cli.Timeout
}

// NewCmdPortForward makes the command.
func NewCmdPortForward(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(), Wait: cli.Timeout{Duration: 30 * time.Second, Unit: time.Second}}
	cmd := &cobra.Command{
		Use:   "port-forward [vm|vmi/]NAME[/NAMESPACE] [PROTOCOL/]PORT[:TARGETPORT]...",
		Short: "Forward local ports to a virtual machine",
		Long: `Forward local ports to ports of a virtual machine, through the cluster's API server.

PORT is the local port and TARGETPORT the guest's, the same unless given; with 0, or nothing before the colon, any free
local port is taken and shown. PROTOCOL is tcp or udp. Ports stay open while the machine restarts or moves to another
node: connections end with the guest they led to, and new ones wait for it, for --wait. What the guest refuses is reset
at once.

With --socks the machines of the cluster are reached by name through one SOCKS5 port: NAME, NAME.NAMESPACE, and
NAME.vmi or NAME.NAMESPACE.vmi for an instance. Clients must leave names to the proxy, as with socks5h:// in curl.

With --background the command returns once the ports are open and prints the session's ID; "port-forward list" shows
such sessions and "port-forward stop" ends them. A machine whose name is list or stop is vm/list, vm/stop.

With --stdio standard input and output are the connection, as ssh's ProxyCommand needs.`,
		Example: cli.Examples(f.Program, `
			virtctl port-forward demo 8080:80
			virtctl port-forward vmi/demo/prod :22 udp/5353:53 --address 127.0.0.1 --address 10.0.0.5
			virtctl port-forward demo 8080:80 --background
			virtctl port-forward --socks
			curl -x socks5h://127.0.0.1:1080 http://demo.prod/
			ssh -o 'ProxyCommand=virtctl port-forward --stdio vmi/demo 22' root@demo`),
		ValidArgsFunction: complete(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Addresses, "address", []string{defaultAddress},
		"Local `ADDRESS` to listen on, an IP address or localhost (can be repeated)")
	flags.BoolVar(&o.Stdio, "stdio", false,
		"Use standard input and output as the one connection, and open no local port")
	flags.StringVar(&o.Socks, "socks", "", "Open a SOCKS5 port at `ADDRESS`:PORT, or at a port of --address, that "+
		"reaches machines by name")
	flags.Lookup("socks").NoOptDefVal = defaultSocksPort
	flags.BoolVar(&o.Background, "background", false, "Return once the ports are open, and go on forwarding")
	flags.Var(&o.Wait, "wait",
		"How long a new connection waits for a guest that restarts or moves; a bare number is seconds")
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "address", "127.0.0.1", "localhost", "0.0.0.0", "::1")
	cli.CompleteFlag(cmd, "socks", defaultSocks)
	cmd.AddCommand(newCmdList(f), newCmdStop(f))
	return cmd
}

// parse reads the arguments and holds the flags against each other.
func (o *Options) parse(cmd *cobra.Command, args []string) error {
	socks := cmd.Flags().Changed("socks")
	switch {
	case len(args) == 0 && !socks:
		return cli.UsageErrorf("%s needs the name of one VM and a port, as in `%[1]s demo 8080:80`", cmd.CommandPath())
	case len(args) == 1 && socks && strings.Contains(args[0], ":"):
		return cli.UsageErrorf("give the address with =, as in --socks=%s", args[0])
	case len(args) == 1:
		return cli.UsageErrorf("%s needs a port too, as in `%[1]s %s 8080:80`", cmd.CommandPath(), args[0])
	case o.Stdio && len(args) != 2:
		return cli.UsageErrorf("--stdio is one connection to one port, got %d", len(args)-1)
	case o.Stdio && (socks || o.Background || o.Output.Given()):
		return cli.UsageErrorf("--stdio goes with none of --socks, --background and -o")
	}
	if len(args) > 0 {
		o.Name = args[0]
		if _, err := cli.ParseTarget(o.Name, "any"); err != nil {
			return err
		}
		o.Ports = nil
		for _, text := range args[1:] {
			if o.Stdio {
				// The local port has no meaning, and KubeVirt takes it for the guest's where there is but one.
				text = strings.TrimPrefix(text, ":")
			}
			p, err := forward.ParsePort(text)
			if err != nil {
				return cli.UsageErrorf("%s", err)
			}
			o.Ports = append(o.Ports, p)
		}
	}
	for _, address := range o.Addresses {
		if address != "localhost" && net.ParseIP(address) == nil {
			return cli.UsageErrorf("--address %q is neither an IP address nor localhost", address)
		}
	}
	if len(o.Addresses) == 0 {
		return cli.UsageErrorf("--address needs an address")
	}
	if socks {
		if err := o.parseSocks(); err != nil {
			return err
		}
	}
	return o.Output.Validate()
}

// parseSocks makes --socks a HOST:PORT.
func (o *Options) parseSocks() error {
	text := o.Socks
	if !strings.Contains(text, ":") {
		text = net.JoinHostPort(o.Addresses[0], text)
	}
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host != "localhost" && net.ParseIP(host) == nil {
		return cli.UsageErrorf("--socks %q is not ADDRESS:PORT, such as %s", o.Socks, defaultSocks)
	}
	o.Socks = text
	return nil
}

// listen opens all local ports, or none.
func (o *Options) listen(addresses []string) (locals []*forward.Local, err error) {
	for _, p := range o.Ports {
		opened, err := p.Listen(addresses)
		if err != nil {
			for _, l := range locals {
				_ = l.Close() // opened a moment ago
			}
			return nil, fmt.Errorf("%w; choose another with PORT:%d, or any with :%[2]d", err, p.Remote)
		}
		locals = append(locals, opened...)
	}
	return locals, nil
}
