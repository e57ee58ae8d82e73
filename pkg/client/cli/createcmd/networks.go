package createcmd

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func addNetworkFlags(o *VMOptions, flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.Networks, "network", nil,
		"Further interface NAME with a bridge on a network of Multus, as `NAME=[NAMESPACE/]DEFINITION` of the "+
			"NetworkAttachmentDefinition (can be repeated)")
	flags.StringArrayVar(&o.IPs, "ip", nil,
		"IP address of an interface of --network, as `NAME=ADDRESS[,ADDRESS]` with one for each family; with /LENGTH "+
			"of its prefix where the network knows none (can be repeated)")
}

// completeNetworks reads the flags about networks.
func (o *VMOptions) completeNetworks() error {
	o.VM.Networks, o.VM.IPs = nil, nil
	for _, text := range o.Networks {
		name, definition, ok := strings.Cut(text, "=")
		if !ok || name == "" || definition == "" {
			return cli.UsageErrorf("--network: %q is not NAME=[NAMESPACE/]DEFINITION, such as red=red-net", text)
		}
		o.VM.Networks = append(o.VM.Networks, create.Network{Name: name, Definition: definition})
	}
	for _, text := range o.IPs {
		name, list, ok := strings.Cut(text, "=")
		addresses := strings.Split(list, ",")
		if !ok || name == "" || slices.Contains(addresses, "") {
			return cli.UsageErrorf("--ip: %q is not NAME=ADDRESS[,ADDRESS], such as red=192.0.2.7", text)
		}
		if o.VM.IPs == nil {
			o.VM.IPs = map[string][]string{}
		}
		o.VM.IPs[name] = append(o.VM.IPs[name], addresses...)
	}
	return nil
}
