package reach

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ownNamespace is the network namespace of the test.
func ownNamespace(t *testing.T) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("entering a network namespace needs root")
	}
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// guestAddress is the guest's in a test's network, nearAddress that of the namespace from which it is dialled.
var guestAddress, nearAddress = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")

// wire makes two network namespaces with a cable between them: one to dial from and one that stands for the guest.
func wire(t *testing.T) (near, guest *os.File) {
	t.Helper()
	ownNamespace(t)
	made := func() *os.File {
		files := make(chan *os.File)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			var f *os.File
			if err := unix.Unshare(unix.CLONE_NEWNET); err == nil {
				f, _ = os.Open("/proc/thread-self/ns/net")
			}
			files <- f
		}()
		f := <-files
		if f == nil {
			t.Skip("cannot make a network namespace here")
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	near, guest = made(), made()
	configure := func(name string, address netip.Addr) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		to := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(24, 32)}}
		return errors.Join(netlink.AddrAdd(link, to), netlink.LinkSetUp(link), netlink.LinkSetUp(lo))
	}
	err := apply.In(near, func() error {
		return errors.Join(
			netlink.LinkAdd(&netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "guest", PeerNamespace: netlink.NsFd(guest.Fd()),
			}),
			configure("near", nearAddress))
	})
	if err == nil {
		err = apply.In(guest, func() error { return configure("guest", guestAddress) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return near, guest
}

// inside calls f, which opens something, in a namespace.
func inside[T any](t *testing.T, ns *os.File, f func() (T, error)) T {
	t.Helper()
	var made T
	err := apply.In(ns, func() (err error) { made, err = f(); return err })
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func plan(binding network.Binding) network.Plan {
	return planAt(binding, guestAddress)
}

func planAt(binding network.Binding, guest netip.Addr) network.Plan {
	return network.Plan{
		Interfaces: []network.Interface{{Name: "default", PodLink: network.PodLink, Binding: binding, Guest: guest}},
	}
}

var known = Known{Pod: []netip.Addr{guestAddress}, Node: []netip.Addr{netip.MustParseAddr("198.51.100.1")}}

func TestGuestByTCP(t *testing.T) {
	ns, guest := wire(t)
	l := inside(t, guest, func() (net.Listener, error) { return net.Listen("tcp4", guestAddress.String()+":0") })
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for _, binding := range []network.Binding{network.Masquerade, network.Bridge} {
		conn, err := Guest(t.Context(), ns, ns, plan(binding), known, TCP, port)
		if err != nil {
			t.Fatalf("%s: %v", binding, err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(peer); err != nil || string(got) != "hello" {
			t.Errorf("%s: the guest got %q, %v", binding, got, err)
		}
		conn.Close()
		peer.Close()
	}
	l.Close()
	if _, err := Guest(t.Context(), ns, ns, plan(network.Masquerade), known, TCP, port); !errors.Is(err,
		syscall.ECONNREFUSED) {
		t.Errorf("a port that nobody listens on: %v", err)
	}
}

func TestGuestByUDP(t *testing.T) {
	ns, guest := wire(t)
	l := inside(t, guest, func() (net.PacketConn, error) {
		return net.ListenPacket("udp4", guestAddress.String()+":0")
	})
	defer l.Close()
	conn, err := Guest(t.Context(), ns, ns, plan(network.Masquerade), known, UDP,
		uint16(l.LocalAddr().(*net.UDPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	n, from, err := l.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "ping" {
		t.Fatalf("got %q, %v", buf[:n], err)
	}
	if _, err := l.WriteTo([]byte("pong"), from); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "pong" {
		t.Errorf("answer %q, %v", buf[:n], err)
	}
}

// The socket is in the namespace that was given, and the goroutine that asked is not.
func TestNamespace(t *testing.T) {
	ownNamespace(t)
	empty := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		var f *os.File
		if err := unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, _ = os.Open("/proc/thread-self/ns/net")
		}
		empty <- f
	}()
	ns := <-empty
	if ns == nil {
		t.Skip("cannot make a network namespace here")
	}
	defer ns.Close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := netip.MustParseAddrPort(l.Addr().String())
	// Its loopback is down.
	if conn, err := In(t.Context(), ns, TCP, address); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("connected from another namespace: %v, %v", conn, err)
	}
	conn, err := net.Dial("tcp4", address.String())
	if err != nil {
		t.Fatalf("the test has left its namespace: %v", err)
	}
	conn.Close()
}

func TestNoAnswerEndsWithTheContext(t *testing.T) {
	ns, guest := wire(t)
	// A full backlog takes no connection and refuses none.
	fd := inside(t, guest, func() (int, error) {
		return unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	})
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: guestAddress.As4()}),
		unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(name.(*unix.SockaddrInet4).Port)
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		conn, err := Guest(ctx, ns, ns, plan(network.Masquerade), known, TCP, port)
		cancel()
		if err == nil {
			defer conn.Close() // one more that the backlog takes
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no answer: %v", err)
		}
		return
	}
	t.Error("the backlog took everything")
}

func TestNoInterface(t *testing.T) {
	if _, err := Guest(t.Context(), nil, nil, network.Plan{}, Known{}, TCP, 1); !errors.Is(err, ErrNoAddress) {
		t.Errorf("no interface: %v", err)
	}
	if _, err := Guest(t.Context(), nil, nil, network.Plan{}, Known{}, "sctp", 1); err == nil {
		t.Error("sctp was taken")
	}
}
