package apply

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

const (
	// lookTime bounds how long a neighbour is looked for, lookStep is the time between two looks.
	lookTime = 2 * time.Second
	lookStep = 5 * time.Millisecond
)

// FindRouters fills in the link-local addresses of routers that the pod knows by others: a guest learns of a router by
// its link-local address. It has to be called before the plan is applied, while the pod is on its networks. A router is
// not found when the address that its MAC stands for is not its own; the guest has no default route then.
func FindRouters(ctx context.Context, ns *os.File, plan *network.Plan) error {
	for i := range plan.Interfaces {
		nic := &plan.Interfaces[i]
		if nic.Binding != network.Bridge || nic.IPv6 == nil || nic.IPv6.Router.IsValid() ||
			!nic.IPv6.Gateway.IsValid() {
			continue
		}
		err := In(ns, func() error {
			link, err := netlink.LinkByName(nic.PodLink)
			if err != nil {
				return fmt.Errorf("find %s: %w", nic.PodLink, err)
			}
			mac, err := neighbour(ctx, link.Attrs().Index, nic.IPv6.Gateway)
			if err != nil || len(mac) != 6 {
				return err
			}
			router := network.LinkLocal6(mac)
			same, err := neighbour(ctx, link.Attrs().Index, router)
			if err == nil && bytes.Equal(same, mac) {
				nic.IPv6.Router = router
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("interface %q: look for the router %s: %w", nic.Name, nic.IPv6.Gateway, err)
		}
	}
	return nil
}

// neighbour returns the MAC of a host on a link of the thread's namespace; nil when it does not answer.
func neighbour(ctx context.Context, link int, address netip.Addr) (net.HardwareAddr, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet6{Port: discard, Addr: address.As16()}
	if address.IsLinkLocalUnicast() {
		to.ZoneId = uint32(link)
	}
	// The kernel asks for the address before it sends anything there.
	if err := unix.Sendto(fd, nil, 0, to); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	const known = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE |
		netlink.NUD_PERMANENT
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	look := time.NewTicker(lookStep)
	defer look.Stop()
	for {
		all, err := netlink.NeighList(link, netlink.FAMILY_V6)
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		i := slices.IndexFunc(all, func(n netlink.Neigh) bool { return n.IP.Equal(address.AsSlice()) })
		switch {
		case i >= 0 && all[i].State&known != 0:
			return all[i].HardwareAddr, nil
		case i >= 0 && all[i].State&netlink.NUD_FAILED != 0:
			return nil, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// discard is the port of the service that takes anything.
const discard = 9
