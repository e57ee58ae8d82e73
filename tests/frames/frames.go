// Package frames has Ethernet frames that a guest may send, honest and spoofed ones, for tests of what its pod lets
// through: of the rules alone, with a tap in place of the guest (pkg/vm/network/apply), and of a whole guest that sends
// them by a raw socket (tests/e2e). The program below it, raw, is what sends and receives them in a guest.
package frames

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// The MACs of the guest, of somebody else on its network, and of all.
var (
	MAC      = net.HardwareAddr{2, 0, 0, 0, 0, 7}
	OtherMAC = net.HardwareAddr{2, 0, 0, 0, 0, 8}
	everyone = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// Addresses are the guest's own, two of each family.
func Addresses() []netip.Addr {
	var out []netip.Addr
	for _, a := range []string{"198.51.100.5", "2001:db8::5", "198.51.100.6", "2001:db8::6"} {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// Parts of frames that tests write themselves.
const (
	KindARP, KindRARP = 0x0806, 0x8035
	KindHonest        = 0x88b5 // for experiments
	AllNodes          = "ff02::1"
	request, reply    = 1, 2
)

// Ether returns a frame to all from a MAC. kind is the type of what is in it, or its length.
func Ether(from net.HardwareAddr, kind uint16, what ...[]byte) []byte {
	return slices.Concat(everyone, from, binary.BigEndian.AppendUint16(nil, kind), slices.Concat(what...))
}

// Tagged puts VLAN tags into a frame, the outermost first.
func Tagged(frame []byte, vlans ...uint16) []byte {
	var tags []byte
	for _, v := range vlans {
		tags = binary.BigEndian.AppendUint16(append(tags, 0x81, 0), v)
	}
	return slices.Concat(frame[:12], tags, frame[12:])
}

// ARP returns a frame of KindARP or KindRARP from the guest.
func ARP(kind uint16, op byte, sender net.HardwareAddr, senderIP, targetIP string) []byte {
	return Ether(MAC, kind, []byte{0, 1, 8, 0, 6, 4, 0, op}, sender, netip.MustParseAddr(senderIP).AsSlice(),
		make([]byte, 6), netip.MustParseAddr(targetIP).AsSlice())
}

// IPv4 returns a packet from the guest's MAC.
func IPv4(from, to string, protocol byte, what ...[]byte) []byte {
	body := slices.Concat(what...)
	header := make([]byte, 20)
	header[0], header[8], header[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(header[2:], uint16(20+len(body)))
	copy(header[12:], netip.MustParseAddr(from).AsSlice())
	copy(header[16:], netip.MustParseAddr(to).AsSlice())
	binary.BigEndian.PutUint16(header[10:], Checksum(header))
	return Ether(MAC, unix.ETH_P_IP, header, body)
}

// IPv6 returns a packet from the guest's MAC. next is the protocol, or the first extension header.
func IPv6(from, to string, next, hops byte, what ...[]byte) []byte {
	body := slices.Concat(what...)
	header := make([]byte, 8)
	header[0], header[6], header[7] = 0x60, next, hops
	binary.BigEndian.PutUint16(header[4:], uint16(len(body)))
	return Ether(MAC, unix.ETH_P_IPV6, header, netip.MustParseAddr(from).AsSlice(),
		netip.MustParseAddr(to).AsSlice(), body)
}

// UDP returns a datagram between two ports, without a checksum.
func UDP(from, to uint16, text string) []byte {
	out := binary.BigEndian.AppendUint16(nil, from)
	out = binary.BigEndian.AppendUint16(out, to)
	out = binary.BigEndian.AppendUint16(out, uint16(8+len(text)))
	return append(append(out, 0, 0), text...)
}

// ICMPv6 returns a message of ICMPv6 with its sum.
func ICMPv6(from, to string, kind byte, what ...[]byte) []byte {
	message := slices.Concat([]byte{kind, 0, 0, 0}, slices.Concat(what...))
	pseudo := slices.Concat(netip.MustParseAddr(from).AsSlice(), netip.MustParseAddr(to).AsSlice(),
		[]byte{0, 0, byte(len(message) >> 8), byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6}, message)
	binary.BigEndian.PutUint16(message[2:], Checksum(pseudo))
	return message
}

// ND returns a frame of neighbour discovery.
func ND(from, to string, kind byte, what ...[]byte) []byte {
	return IPv6(from, to, unix.IPPROTO_ICMPV6, 255, ICMPv6(from, to, kind, what...))
}

// About is the body of a solicitation or advertisement of an address.
func About(address string) []byte {
	return append(make([]byte, 4), netip.MustParseAddr(address).AsSlice()...)
}

// Option returns an option of neighbour discovery, of 8 bytes.
func Option(kind byte, data []byte) []byte { return append([]byte{kind, 1}, data...) }

// Checksum is that of IP over an even or odd number of bytes.
func Checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Honest returns a frame that any guard lets through, number n of them.
func Honest(n uint32) []byte {
	return Ether(MAC, KindHonest, binary.BigEndian.AppendUint32(nil, n), make([]byte, 42))
}

// Received returns a frame as a socket has it that is told nothing of VLANs: the kernel has taken off the first tag.
func Received(frame []byte) []byte {
	if bytes.Equal(frame[12:14], []byte{0x81, 0}) {
		return slices.Concat(frame[:12], frame[16:])
	}
	return frame
}
