package apply

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/tests/frames"
)

// What tables of frames are written with.
var (
	guestMAC, otherMAC = frames.MAC, frames.OtherMAC
	allMAC             = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

	ether, tagged, arpFrame  = frames.Ether, frames.Tagged, frames.ARP
	ipFrame, ip6Frame, udpOf = frames.IPv4, frames.IPv6, frames.UDP
	icmp6Of, ndFrame, about  = frames.ICMPv6, frames.ND, frames.About
)

const request, reply = 1, 2 // of ARP

// guarded is a pod whose plan was applied, with the test in the place of its guest's QEMU and of its network.
type guarded struct {
	pod  *os.File
	plan network.Plan
	tap  *os.File
	lan  int
	sent uint32
}

// newGuarded applies a plan of one bridge in a namespace of its own.
// The functions before come first.
func newGuarded(t *testing.T, nic network.Interface, before ...func(*guarded)) *guarded {
	t.Helper()
	g := &guarded{pod: newNetns(t), plan: network.Plan{Interfaces: []network.Interface{nic}}}
	lan := newNetns(t)
	for _, ns := range []*os.File{g.pod, lan} {
		run(t, ns, func() error { return sysctl("ipv6/conf/default/disable_ipv6", "1") }) // nothing but the test speaks
	}
	for _, f := range before {
		f(g)
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
	return frames.Honest(g.sent)
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
	bare := frames.Received(frame)
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
