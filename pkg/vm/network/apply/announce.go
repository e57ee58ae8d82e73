package apply

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Announce tells the networks of a plan where its guest's addresses are, as a host does that comes to a link: by an ARP
// announcement (RFC 5227) and an unsolicited neighbour advertisement (RFC 4861, 7.2.6), from the guest's MAC. It is for
// a guest that has come here by a migration: Linux with virtio-net says the same by itself, and for others QEMU says
// their MAC alone, from which a fabric that answers ARP for its hosts learns no address.
func Announce(ns *os.File, plan network.Plan) error {
	return In(ns, func() error {
		var failed error
		for _, nic := range plan.Interfaces {
			if err := announce(nic); err != nil {
				failed = errors.Join(failed, fmt.Errorf("interface %q: %w", nic.Name, err))
			}
		}
		return failed
	})
}

func announce(nic network.Interface) error {
	frames, err := announcements(nic)
	if err != nil || len(frames) == 0 {
		return err
	}
	link, err := net.InterfaceByName(nic.PodLink)
	if err != nil {
		return fmt.Errorf("find %s: %w", nic.PodLink, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // without a protocol it hears nothing
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for _, frame := range frames {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
			return os.NewSyscallError("sendto", err)
		}
	}
	return nil
}

// announcements returns the frames that announce the addresses of an interface.
func announcements(nic network.Interface) ([][]byte, error) {
	var out [][]byte
	for _, a := range nic.Announced() {
		mac, err := net.ParseMAC(nic.MAC)
		if err != nil {
			return nil, err
		}
		frame := arpAnnouncement(mac, a)
		if a.Is6() {
			if frame, err = advertisement(mac, a); err != nil {
				return nil, err
			}
		}
		out = append(out, frame)
	}
	return out, nil
}

// arpAnnouncement asks all who has the address, as its owner.
func arpAnnouncement(mac net.HardwareAddr, a netip.Addr) []byte {
	everyone := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	const ask = 1
	return slices.Concat(everyone, mac, []byte{unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff},
		[]byte{0, 1, unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff, 6, 4, 0, ask},
		mac, a.AsSlice(), make([]byte, 6), a.AsSlice())
}

// advertisement tells all nodes that the address is at the MAC, whatever they have known.
func advertisement(mac net.HardwareAddr, a netip.Addr) ([]byte, error) {
	allNodes := netip.IPv6LinkLocalAllNodes()
	text, err := ndp.MarshalMessageChecksum(&ndp.NeighborAdvertisement{
		Override: true, TargetAddress: a,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: mac}},
	}, a, allNodes)
	if err != nil {
		return nil, fmt.Errorf("write the neighbour advertisement of %s: %w", a, err)
	}
	const hops = 255 // with less a router has passed it on, and nobody believes it
	return slices.Concat(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, mac,
		[]byte{unix.ETH_P_IPV6 >> 8, unix.ETH_P_IPV6 & 0xff},
		[]byte{6 << 4, 0, 0, 0, byte(len(text) >> 8), byte(len(text)), unix.IPPROTO_ICMPV6, hops},
		a.AsSlice(), allNodes.AsSlice(), text), nil
}
