package hostnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// LANs are Ethernets for pods' networks besides the first, each a bridge on every node, which the CNI plugin bridge
// connects pods to, and a cable behind it:
//
//	machine            vlocalS-lan1
//	              ┌─────────┴─────────┐
//	        vlocalS-l1-1        vlocalS-l1-2
//	              │ eth1              │ eth1
//	node1       lan1      node2     lan1
//	           ┌──┴──┐             ┌──┴──┐
//
// They have no addresses and lead nowhere else. (One LAN with VLANs would do, but not every kernel's bridges know
// them.)

// LANBridge returns the name of LAN j's bridge in a node.
func LANBridge(j int) string { return fmt.Sprintf("lan%d", j) }

// lanCable returns the name of the node's end of the cable to LAN j.
func lanCable(j int) string { return fmt.Sprintf("eth%d", j) }

// lanLinks returns the names of the machine's links of all LANs.
func lanLinks(s instance.Slot) []string {
	var names []string
	for j := 1; j <= instance.LANs; j++ {
		names = append(names, s.LAN(j))
		for k := 1; k <= instance.MaxNodes; k++ {
			names = append(names, s.LANPort(j, k))
		}
	}
	return names
}

// upLANs makes the machine's bridges.
func upLANs(in *instance.Instance) error {
	for j := 1; j <= instance.LANs; j++ {
		name := in.Slot.LAN(j)
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add bridge %s: %w", name, err)
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find bridge %s: %w", name, err)
		}
		if err := Mute(name); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set bridge %s up: %w", name, err)
		}
	}
	return nil
}

// Mute keeps this side of a LAN's bridge out of the LAN: it has no address, and answers for none that is somewhere
// else on the machine.
func Mute(bridge string) error {
	for key, value := range map[string]string{"ipv6/conf/" + bridge + "/disable_ipv6": "1", "ipv4/conf/" + bridge +
		"/arp_ignore": "8"} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set net/%s: %w", key, err)
		}
	}
	return nil
}

// connectLANs lays a node's cables to the LANs. Older ones have been removed.
func connectLANs(n instance.Node, pid int) error {
	h, err := enter(n, pid)
	if err != nil {
		return err
	}
	defer h.Close()
	for j := 1; j <= instance.LANs; j++ {
		if err := connectLAN(n, j, pid); err != nil {
			return err
		}
		if err := insideLAN(h, j); err != nil {
			return fmt.Errorf("make LAN %d of %s: %w", j, n.NodeName(), err)
		}
	}
	return nil
}

func connectLAN(n instance.Node, j, pid int) error {
	bridge, err := netlink.LinkByName(n.Slot.LAN(j))
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", n.Slot.LAN(j), err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = n.Slot.LANPort(j, n.Number), bridge.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: lanCable(j), PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect %s to LAN %d: %w", n.NodeName(), j, err)
	}
	link, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", attrs.Name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", attrs.Name, err)
	}
	return nil
}

// insideLAN makes the node's bridge.
func insideLAN(h *netlink.Handle, j int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = LANBridge(j)
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("add bridge %s: %w", attrs.Name, err)
	}
	bridge, err := h.LinkByName(attrs.Name)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", attrs.Name, err)
	}
	cable, err := h.LinkByName(lanCable(j))
	if err != nil {
		return fmt.Errorf("find %s: %w", lanCable(j), err)
	}
	if err := h.LinkSetMaster(cable, bridge); err != nil {
		return fmt.Errorf("put %s into %s: %w", lanCable(j), attrs.Name, err)
	}
	for _, link := range []netlink.Link{cable, bridge} {
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
		}
	}
	return nil
}
