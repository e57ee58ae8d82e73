package createcmd

import (
	"github.com/spf13/pflag"

	"github.com/virtkit/virtkit/pkg/client/action/create"
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
func (o *VMOptions) completeNetworks() (err error) {
	if o.VM.Networks, o.VM.IPs, err = create.ParseNetworks(o.Networks, o.IPs); err != nil {
		return flagError(err)
	}
	return nil
}
