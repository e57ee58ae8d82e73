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

// Cut unplugs a node's cables at the machine's bridges: nothing goes in or out any more, and all that runs on the
// node runs on. Cutting twice is no error.
func Cut(n instance.Node) error { return setCables(n, netlink.LinkSetDown) }

// Heal undoes Cut. Routes and addresses have stayed where they were.
func Heal(n instance.Node) error { return setCables(n, netlink.LinkSetUp) }

func setCables(n instance.Node, set func(netlink.Link) error) error {
	links, err := cables(n)
	if err != nil {
		return err
	}
	for _, link := range links {
		if err := set(link); err != nil {
			return fmt.Errorf("set link %s: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

// IsCut reports whether a node that runs is cut off.
func IsCut(n instance.Node) (bool, error) {
	links, err := cables(n)
	if errors.Is(err, ErrNotConnected) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return links[0].Attrs().Flags&net.FlagUp == 0, nil
}

// cables returns a node's links on the machine: that to the bridge, and those to the LANs if it has any.
func cables(n instance.Node) ([]netlink.Link, error) {
	names := []string{n.Slot.Port(n.Number)}
	for j := 1; j <= instance.LANs; j++ {
		names = append(names, n.Slot.LANPort(j, n.Number))
	}
	var links []netlink.Link
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		switch {
		case err == nil:
			links = append(links, link)
		case !errors.As(err, new(netlink.LinkNotFoundError)):
			return nil, fmt.Errorf("find link %s: %w", name, err)
		case len(links) == 0:
			return nil, fmt.Errorf("%s has no network: %w", n.NodeName(), ErrNotConnected)
		}
	}
	return links, nil
}
