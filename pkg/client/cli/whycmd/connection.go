package whycmd

import (
	"cmp"
	"context"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/action/why/netpolicy"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

func (o *Options) addConnectionFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.From, "from", "", "Explain what drops connections to the guest from `POD`: NAME, "+
		"NAMESPACE/NAME, or the address of a client outside of the cluster")
	flags.Int32Var(&o.Port, "port", 0, "`PORT` of the guest that is connected to; without it all are asked about")
	flags.StringVar(&o.Protocol, "protocol", "tcp", "`PROTOCOL` of the connection: tcp, udp")
	completioncmd.Flag(cmd, "from", completioncmd.Pods(o.Factory))
	cli.CompleteFlag(cmd, "protocol", "tcp", "udp")
}

// ofMachine returns the flag that is about a machine alone, or "".
func (o *Options) ofMachine() string {
	switch {
	case o.Migrate:
		return "--migrate"
	case o.From != "":
		return "--from"
	}
	return ""
}

// validateConnection refuses flags of a connection that make no sense.
func (o *Options) validateConnection(cmd *cobra.Command) error {
	flags := cmd.Flags()
	if !flags.Changed("from") {
		for _, flag := range []string{"port", "protocol"} {
			if flags.Changed(flag) {
				return cli.UsageErrorf("--%s says more about a connection: say where it comes from, with --from POD",
					flag)
			}
		}
		return nil
	}
	switch {
	case o.Migrate:
		return cli.UsageErrorf("--from and --migrate ask for different things; give one of them")
	case flags.Changed("port") && (o.Port < netpolicy.First || o.Port > netpolicy.Last):
		return cli.UsageErrorf("--port: %d is not a port; use 1 to 65535", o.Port)
	case !strings.EqualFold(o.Protocol, "tcp") && !strings.EqualFold(o.Protocol, "udp"):
		return cli.UsageErrorf("--protocol: %q is none of tcp, udp", o.Protocol)
	}
	if _, ok := o.address(); ok {
		return nil
	}
	namespace, name, found := strings.Cut(o.From, "/")
	if !found {
		namespace, name = "default", namespace
	}
	if len(content.IsPathSegmentName(name)) > 0 || len(content.IsPathSegmentName(namespace)) > 0 || name == "" ||
		namespace == "" {
		return cli.UsageErrorf("--from: %q is no NAME or NAMESPACE/NAME of a pod, and no address", o.From)
	}
	return nil
}

// address returns the address that --from names; false for a pod.
func (o *Options) address() (netip.Addr, bool) {
	address, err := netip.ParseAddr(o.From)
	if err != nil || address.Zone() != "" {
		return netip.Addr{}, false
	}
	return address.Unmap(), true
}

// connection returns the connection that is asked about, nil for none; namespace is that of a pod named without one.
func (o *Options) connection(ctx context.Context, c *client.Client, namespace string) (*gather.Asked, error) {
	if o.From == "" {
		return nil, nil //nolint:nilnil // nothing is asked
	}
	asked := &gather.Asked{Protocol: corev1.Protocol(strings.ToUpper(o.Protocol)), Port: o.Port}
	if address, ok := o.address(); ok {
		asked.Source = why.Source{Address: address}
		return asked, nil
	}
	at, name, found := strings.Cut(o.From, "/")
	if !found {
		at, name = "", at
	}
	var err error
	asked.Source, err = gather.Source(ctx, c, cmp.Or(at, namespace), name)
	return asked, err
}
