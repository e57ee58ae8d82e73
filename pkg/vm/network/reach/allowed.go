package reach

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

// AddressError is an address that the guest's interface has by its pod's network, and that is not dialled.
type AddressError struct {
	// Interface is the interface's name, Reason why its address is not the guest's to have.
	Interface string
	Address   netip.Addr
	Reason    string
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("interface %q of the guest has the address %s, to which no connection is made: %s", e.Interface,
		e.Address, e.Reason)
}

// Allowed refuses an address of an interface that could be another's than the guest's: loopback, link-local (where
// clouds have their metadata) and multicast addresses, and the node's. But for masquerade, whose guest has the
// address that its VMI says behind the pod's, it has to be one of the pod's.
func Allowed(nic network.Interface, a netip.Addr, known Known) error {
	a = a.Unmap()
	refuse := func(reason string) error {
		return &AddressError{Interface: nic.Name, Address: a, Reason: reason}
	}
	switch {
	case !a.IsGlobalUnicast(): // loopback, link-local, multicast, broadcast, unspecified
		return refuse("it is not a unicast address that a guest can have")
	case slices.Contains(known.Node, a):
		return refuse("it is the node's")
	case nic.Binding == network.Masquerade:
		return nil
	case len(known.Pod) == 0:
		return refuse("the pod has no address in its status yet; try again in a moment")
	case !slices.Contains(known.Pod, a):
		return refuse("the pod does not have it by its status (status.podIPs)")
	}
	return nil
}

// elsewhere refuses an address that belongs to the node by the node's routes, whatever the API server knows of them.
func elsewhere(node *os.File, address netip.Addr) error {
	return apply.In(node, func() error {
		routes, err := netlink.RouteGet(net.IP(address.AsSlice()))
		if err != nil {
			return fmt.Errorf("look up the node's route to %s: %w", address, err)
		}
		if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Type != unix.RTN_UNICAST }) {
			return &AddressError{Interface: network.PodLink, Address: address, Reason: "it is the node's"}
		}
		return nil
	})
}
