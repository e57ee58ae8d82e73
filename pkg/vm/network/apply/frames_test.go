package apply

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// The MACs of a guest, of somebody else on its network, and of all.
var (
	guestMAC = net.HardwareAddr{2, 0, 0, 0, 0, 7}
	otherMAC = net.HardwareAddr{2, 0, 0, 0, 0, 8}
	allMAC   = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// ether returns a frame to all from a MAC; what is of a type, or of a length.
func ether(from net.HardwareAddr, kind uint16, what ...[]byte) []byte {
	return slices.Concat(allMAC, from, binary.BigEndian.AppendUint16(nil, kind), slices.Concat(what...))
}

// tagged puts VLAN tags into a frame, the outermost first.
func tagged(frame []byte, vlans ...uint16) []byte {
	var tags []byte
	for _, v := range vlans {
		tags = binary.BigEndian.AppendUint16(append(tags, 0x81, 0), v)
	}
	return slices.Concat(frame[:12], tags, frame[12:])
}

// arpFrame returns a frame of ARP (0x0806) or RARP (0x8035).
func arpFrame(kind uint16, op byte, sender net.HardwareAddr, senderIP, targetIP string) []byte {
	return ether(guestMAC, kind, []byte{0, 1, 8, 0, 6, 4, 0, op}, sender, netip.MustParseAddr(senderIP).AsSlice(),
		make([]byte, 6), netip.MustParseAddr(targetIP).AsSlice())
}

func ipFrame(from, to string, protocol byte, what ...[]byte) []byte {
	body := slices.Concat(what...)
	header := make([]byte, 20)
	header[0], header[8], header[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(header[2:], uint16(20+len(body)))
	copy(header[12:], netip.MustParseAddr(from).AsSlice())
	copy(header[16:], netip.MustParseAddr(to).AsSlice())
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return ether(guestMAC, unix.ETH_P_IP, header, body)
}

func ip6Frame(from, to string, next, hops byte, what ...[]byte) []byte {
	body := slices.Concat(what...)
	header := make([]byte, 8)
	header[0], header[6], header[7] = 0x60, next, hops
	binary.BigEndian.PutUint16(header[4:], uint16(len(body)))
	return ether(guestMAC, unix.ETH_P_IPV6, header, netip.MustParseAddr(from).AsSlice(),
		netip.MustParseAddr(to).AsSlice(), body)
}

func udpOf(from, to uint16, text string) []byte {
	out := binary.BigEndian.AppendUint16(nil, from)
	out = binary.BigEndian.AppendUint16(out, to)
	out = binary.BigEndian.AppendUint16(out, uint16(8+len(text)))
	return append(append(out, 0, 0), text...)
}

// icmp6Of returns a message of ICMPv6 with its sum.
func icmp6Of(from, to string, kind byte, what ...[]byte) []byte {
	message := slices.Concat([]byte{kind, 0, 0, 0}, slices.Concat(what...))
	pseudo := slices.Concat(netip.MustParseAddr(from).AsSlice(), netip.MustParseAddr(to).AsSlice(),
		[]byte{0, 0, byte(len(message) >> 8), byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6}, message)
	binary.BigEndian.PutUint16(message[2:], checksum(pseudo))
	return message
}

// ndFrame returns a frame of neighbour discovery.
func ndFrame(from, to string, kind byte, what ...[]byte) []byte {
	return ip6Frame(from, to, unix.IPPROTO_ICMPV6, 255, icmp6Of(from, to, kind, what...))
}

// about is the body of a solicitation or advertisement of an address.
func about(address string) []byte {
	return append(make([]byte, 4), netip.MustParseAddr(address).AsSlice()...)
}

func option(kind byte, data []byte) []byte { return append([]byte{kind, 1}, data...) }

func checksum(b []byte) uint16 {
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

// guarded is a pod whose plan was applied, with the test in the place of its guest's QEMU and of its network.
type guarded struct {
	pod  *os.File
	plan network.Plan
	tap  *os.File
	lan  int
	sent uint32
}

// newGuarded applies a plan of one bridge in a namespace of its own.
func newGuarded(t *testing.T, nic network.Interface) *guarded {
	t.Helper()
	g := &guarded{pod: newNetns(t), plan: network.Plan{Interfaces: []network.Interface{nic}}}
	lan := newNetns(t)
	for _, ns := range []*os.File{g.pod, lan} {
		run(t, ns, func() error { return sysctl("ipv6/conf/default/disable_ipv6", "1") }) // nothing but the test speaks
	}
	wire(t, g.pod, nic.PodLink, "", lan, "eth0", "")
	if err := Apply(g.pod, g.plan); err != nil {
		t.Fatal(err)
	}
	run(t, g.pod, func() error {
		bridge, err := netlink.LinkByName(nic.BridgeLink)
		if err != nil {
			return err
		}
		// It would hand reports of multicast groups to routers only.
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Index = nic.BridgeLink, bridge.Attrs().Index
		if err := netlink.BridgeSetMcastSnoop(&netlink.Bridge{LinkAttrs: attrs}, false); err != nil {
			return err
		}
		g.tap, err = openTap(nic.Tap)
		return err
	})
	t.Cleanup(func() { g.tap.Close() })
	run(t, lan, func() (err error) {
		g.lan, err = listenFrames("eth0")
		return err
	})
	t.Cleanup(func() { unix.Close(g.lan) })
	// The bridge forwards when the kernel has seen the carriers, which takes up to a second, or longer on a busy node.
	for deadline := time.Now().Add(time.Minute); ; {
		g.send(t, g.honest())
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(g.lan), Events: unix.POLLIN}}, 100)
		if n > 0 {
			return g
		}
		if err != nil && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			t.Fatalf("the bridge does not forward: %v", err)
		}
	}
}

// openTap opens a tap as QEMU does.
func openTap(name string) (*os.File, error) {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, request)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// listenFrames returns a socket that has all frames of a link.
func listenFrames(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	const all = 0x0300 // ETH_P_ALL, big-endian
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return 0, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index})
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// send sends a frame as the guest.
func (g *guarded) send(t *testing.T, frame []byte) {
	t.Helper()
	const header = 10 // virtio-net's: nothing is offloaded
	if _, err := g.tap.Write(append(make([]byte, header), frame...)); err != nil {
		t.Fatalf("write to the tap: %v", err)
	}
}

// honest returns a frame that any guard lets through, the next of them.
func (g *guarded) honest() []byte {
	g.sent++
	return ether(guestMAC, 0x88b5, binary.BigEndian.AppendUint32(nil, g.sent), make([]byte, 42)) // for experiments
}

// receive returns the next frame that has reached the network, without its VLAN tag, which the kernel has taken off.
func (g *guarded) receive(t *testing.T) []byte {
	t.Helper()
	buf := make([]byte, 2048)
	n, _, err := unix.Recvfrom(g.lan, buf, 0)
	if err != nil {
		t.Fatalf("no frame on the network: %v", err)
	}
	return buf[:n]
}

// passes reports whether a frame of the guest reaches the network.
func (g *guarded) passes(t *testing.T, frame []byte) bool {
	t.Helper()
	next := g.honest()
	g.send(t, frame)
	g.send(t, next)
	bare := frame
	if bytes.Equal(frame[12:14], []byte{0x81, 0}) {
		bare = slices.Concat(frame[:12], frame[16:])
	}
	passed := false
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		switch got := g.receive(t); {
		case bytes.Equal(got, next):
			return passed
		case bytes.Equal(got, bare):
			passed = true
		}
	}
	t.Fatal("a frame that any guard lets through does not reach the network")
	return false
}

// dropped returns the counters of the guard.
func (g *guarded) dropped(t *testing.T) map[network.Spoof]uint64 {
	t.Helper()
	all, err := Dropped(g.pod, g.plan)
	if err != nil {
		t.Fatal(err)
	}
	return all[g.plan.Interfaces[0].Name]
}
