package reach

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// A pod says in its network that the guest has an address of the node's, of the cloud's metadata, or of anybody's. What
// virt-handler dialled from the node's namespace was then what the node reaches: its own ports on loopback first.
func TestOnlyTheGuestsAddressIsDialled(t *testing.T) {
	ns, guest := wire(t)
	on := func(address string) uint16 {
		l := inside(t, ns, func() (net.Listener, error) { return net.Listen("tcp4", address+":0") })
		t.Cleanup(func() { l.Close() })
		return uint16(l.Addr().(*net.TCPAddr).Port)
	}
	other := inside(t, guest, func() (net.Listener, error) { return net.Listen("tcp4", guestAddress.String()+":0") })
	defer other.Close()
	for _, test := range []struct {
		name    string
		binding network.Binding
		address string
		port    uint16
		known   Known
	}{
		{
			"the node's loopback", network.Bridge, "127.0.0.1", on("127.0.0.1"),
			Known{Pod: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		},
		{"the pod's loopback", network.Masquerade, "127.0.0.1", on("127.0.0.1"), known},
		{
			"metadata from the node", network.Bridge, "169.254.169.254", 80,
			Known{Pod: []netip.Addr{netip.MustParseAddr("169.254.169.254")}},
		},
		{"metadata from the pod", network.Masquerade, "169.254.169.254", 80, known},
		{"any address", network.Bridge, "0.0.0.0", on("0.0.0.0"), known},
		{"the node's, by its status", network.Masquerade, "198.51.100.1", 22, known},
		{
			"the node's, by its routes", network.Bridge, nearAddress.String(), on(nearAddress.String()),
			Known{Pod: []netip.Addr{nearAddress}},
		},
		{
			"another host's", network.Bridge, guestAddress.String(), uint16(other.Addr().(*net.TCPAddr).Port),
			Known{Pod: []netip.Addr{netip.MustParseAddr("192.0.2.9")}},
		},
		{
			"a pod without an address", network.Bridge, guestAddress.String(), uint16(other.Addr().(*net.TCPAddr).Port),
			Known{},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn, err := Guest(t.Context(), ns, ns, planAt(test.binding, netip.MustParseAddr(test.address)), test.known,
				TCP, test.port)
			if conn != nil {
				conn.Close()
			}
			var refused *AddressError
			if !errors.As(err, &refused) {
				t.Errorf("dialled %s: %v", test.address, err)
			}
		})
	}
}
