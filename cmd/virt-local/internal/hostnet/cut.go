package hostnet

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// ErrNotConnected is of a node that has no cable, because it does not run.
var ErrNotConnected = errors.New("it does not run")

// Cut takes a node's cable out of the machine's bridge, as far as the node can tell: nothing goes in or out any
// more, and all that runs on the node runs on. Cutting twice is no error.
func Cut(n instance.Node) error { return setCable(n, netlink.LinkSetDown) }

// Heal undoes Cut. Routes and addresses have stayed where they were.
func Heal(n instance.Node) error { return setCable(n, netlink.LinkSetUp) }

func setCable(n instance.Node, set func(netlink.Link) error) error {
	link, err := cable(n)
	if err != nil {
		return err
	}
	if err := set(link); err != nil {
		return fmt.Errorf("set link %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// IsCut reports whether a node that runs is cut off.
func IsCut(n instance.Node) (bool, error) {
	link, err := cable(n)
	if errors.Is(err, ErrNotConnected) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return link.Attrs().Flags&net.FlagUp == 0, nil
}

func cable(n instance.Node) (netlink.Link, error) {
	port := n.Slot.Port(n.Number)
	link, err := netlink.LinkByName(port)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("%s has no network: %w", n.NodeName(), ErrNotConnected)
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", port, err)
	}
	return link, nil
}
