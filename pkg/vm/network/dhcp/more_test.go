package dhcp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

func TestMoreOptions(t *testing.T) {
	nic := masquerade()
	nic.DHCP = &network.DHCPOptions{
		BootFile: "pxe.0", TFTPServer: "tftp.example",
		NTP:     []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")},
		Private: []network.PrivateOption{{Code: 240, Value: "private.options.kubevirt.io"}},
	}
	reply := ask(t, config(t, nic), dhcpv4.MessageTypeDiscover)
	for _, want := range []string{
		"TFTP Server Name: tftp.example", "Bootfile Name: pxe.0", "NTP Servers: 10.0.0.1, 10.0.0.2",
	} {
		if !strings.Contains(reply.Summary(), want) {
			t.Errorf("no %q in\n%s", want, reply.Summary())
		}
	}
	if got := string(reply.Options.Get(dhcpv4.GenericOptionCode(240))); got != "private.options.kubevirt.io" {
		t.Errorf("option 240: %q", got)
	}
}
