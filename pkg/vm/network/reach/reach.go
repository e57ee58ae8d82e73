// Package reach opens connections to a guest from inside its pod's network, for virt-handler: what a user forwards
// to a guest reaches it whatever the cluster's network allows between pods, and ports that the VMI does not list too.
//
// A socket belongs to the network namespace it was made in, wherever it is used. So only its making happens on an
// OS thread that enters the namespace and ends; connecting is the runtime's poller's work, and ten
// thousand guests that do not answer hold no threads.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

// Protocols that a guest can be reached by.
const (
	TCP = "tcp"
	UDP = "udp"
)

// ErrNoAddress is a guest without an interface that could be dialled.
var ErrNoAddress = errors.New("the guest has no network interface in the pod network")

// Known are addresses that do not come from the pod's network, but from the status of the guest's pod.
type Known struct {
	// Pod are the pod's addresses, Node its node's.
	Pod, Node []netip.Addr
}

// headStart is how long IPv4 alone is tried, when the guest does not answer at all: long enough that a slow guest does
// not see two connections, short enough for one that has IPv6 alone. RFC 8305 recommends 250 ms, and allows 2 s.
const headStart = 500 * time.Millisecond

// Guest connects to a port of the guest behind a plan. TCP goes by the family that answers first, of which IPv4 has a
// head start: the guest of a dual-stack pod may be configured for one family, or a program in it listen by one, and
// nobody knows which. UDP does not ask, and goes by IPv4 where the guest has an address. pod and node are the network
// namespaces of the guest's pod and of its node. Errors are syscall errors, that of ctx, or an *AddressError.
//
// With the bridge binding the pod has no address left from which the guest could be reached; the guest has the pod's,
// and is dialled from the node, as the kubelet dials any pod.
func Guest(
	ctx context.Context, pod, node *os.File, plan network.Plan, known Known, protocol string, port uint16,
) (net.Conn, error) {
	if protocol != TCP && protocol != UDP {
		return nil, net.UnknownNetworkError(protocol)
	}
	// other networks may be out of the node's reach
	i := slices.IndexFunc(plan.Interfaces, func(nic network.Interface) bool { return nic.PodLink == network.PodLink })
	if i < 0 {
		return nil, ErrNoAddress
	}
	nic := plan.Interfaces[i]
	var dials []func(context.Context) (net.Conn, error)
	for _, address := range addresses(nic) {
		dials = append(dials, func(ctx context.Context) (net.Conn, error) {
			return guest(ctx, pod, node, nic, known, protocol, netip.AddrPortFrom(address, port))
		})
	}
	if len(dials) == 0 {
		return nil, ErrNoAddress
	}
	return first(ctx, dials)
}

// addresses returns the addresses that a guest has by its interface.
func addresses(nic network.Interface) (out []netip.Addr) {
	if nic.Guest.IsValid() {
		out = append(out, nic.Guest)
	}
	if nic.IPv6 != nil {
		out = append(out, nic.IPv6.Guest)
	}
	return out
}

func guest(
	ctx context.Context, pod, node *os.File, nic network.Interface, known Known, protocol string, to netip.AddrPort,
) (net.Conn, error) {
	if err := Allowed(nic, to.Addr(), known); err != nil {
		return nil, err
	}
	if nic.Binding != network.Bridge {
		return In(ctx, pod, protocol, to)
	}
	if err := elsewhere(node, to.Addr()); err != nil {
		return nil, err
	}
	return In(ctx, node, protocol, to)
}

// In connects to an address from a network namespace.
func In(ctx context.Context, ns *os.File, protocol string, address netip.AddrPort) (net.Conn, error) {
	kind := unix.SOCK_STREAM
	if protocol == UDP {
		kind = unix.SOCK_DGRAM
	}
	family := unix.AF_INET
	if address.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := socket(ns, family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), protocol+" "+address.String())
	defer file.Close() // FileConn has a duplicate
	if err := connect(ctx, file, address); err != nil {
		return nil, &net.OpError{Op: "dial", Net: protocol, Addr: net.TCPAddrFromAddrPort(address), Err: err}
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("use the connected socket: %w", err)
	}
	return conn, nil
}

// socket makes a socket in the network namespace.
func socket(ns *os.File, family, kind int) (fd int, err error) {
	err = apply.In(ns, func() error {
		fd, err = unix.Socket(family, kind, 0)
		return os.NewSyscallError("socket", err)
	})
	return fd, err
}

// connect waits for the connection to be made, refused, or no longer wanted.
func connect(ctx context.Context, file *os.File, address netip.AddrPort) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	// fails once the file is closed
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var outcome error
	err = raw.Control(func(fd uintptr) {
		outcome = unix.Connect(int(fd), sockaddr(address))
	})
	if err != nil {
		return err
	}
	if outcome != nil && !errors.Is(outcome, unix.EINPROGRESS) && !errors.Is(outcome, unix.EINTR) {
		return os.NewSyscallError("connect", outcome)
	}
	err = raw.Write(func(fd uintptr) bool {
		var code int
		code, outcome = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if outcome != nil {
			return true
		}
		if code != 0 {
			outcome = os.NewSyscallError("connect", unix.Errno(code))
			return true
		}
		_, unfinished := unix.Getpeername(int(fd))
		return unfinished == nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	return outcome
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}
