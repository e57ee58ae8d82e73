// Package apply makes the parts of a network.Plan in a pod's network namespace: bridge, tap, addresses, sysctls and
// nftables rules. virt-handler calls it from outside the pod before the guest starts, and again whenever it re-attaches
// to a launcher: applying a plan twice changes nothing. Nothing undoes a plan; it ends with the namespace.
//
// Everything runs on an OS thread of its own that enters the namespace and is thrown away afterwards,
// so no failure can leave a goroutine of the caller in the wrong namespace.
package apply

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Links reads the links of a network namespace with their addresses and routes, loopback left out.
// ns is an open file of the namespace, such as /proc/<pid>/ns/net.
func Links(ns *os.File) ([]network.Link, error) {
	var links []network.Link
	err := In(ns, func() error {
		all, err := netlink.LinkList()
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		for _, l := range all {
			if l.Attrs().Flags&net.FlagLoopback != 0 {
				continue
			}
			link, err := readLink(l)
			if err != nil {
				return fmt.Errorf("read link %s: %w", l.Attrs().Name, err)
			}
			links = append(links, link)
		}
		return nil
	})
	return links, err
}

// Apply makes the parts of the plan in the network namespace ns.
func Apply(ns *os.File, plan network.Plan) error {
	if len(plan.Interfaces) == 0 {
		return nil
	}
	if err := Guard(ns, plan); err != nil { // before there is a tap to send by
		return err
	}
	err := In(ns, func() error {
		for _, nic := range plan.Interfaces {
			if err := applyInterface(nic); err != nil {
				return fmt.Errorf("interface %q: %w", nic.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return applyRules(ns, plan)
}

// In runs f in a network namespace, on a thread that ends with f.
func In(ns *os.File, f func() error) error {
	done := make(chan error)
	go func() {
		// Never unlocked: the runtime ends the thread with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

func readLink(l netlink.Link) (network.Link, error) {
	attrs := l.Attrs()
	link := network.Link{Name: attrs.Name, MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU, Tap: l.Type() == "tuntap"}
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return link, err
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && a.Scope == int(netlink.SCOPE_UNIVERSE) {
			ones, _ := a.Mask.Size()
			link.Addresses = append(link.Addresses, netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	for _, unspecified := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		family := netlink.FAMILY_V4
		if unspecified.Is6() {
			family = netlink.FAMILY_V6
		}
		routes, err := netlink.RouteList(l, family)
		if err != nil {
			return link, err
		}
		for _, r := range routes {
			route := network.Route{Destination: netip.PrefixFrom(unspecified, 0)}
			if r.Dst != nil {
				ip, _ := netip.AddrFromSlice(r.Dst.IP)
				ones, _ := r.Dst.Mask.Size()
				route.Destination = netip.PrefixFrom(ip.Unmap(), ones)
			}
			if route.Destination.Addr().IsLinkLocalUnicast() && route.Destination.Addr().Is6() {
				continue // each link has it
			}
			if ip, ok := netip.AddrFromSlice(r.Gw); ok {
				route.Via = ip.Unmap()
			}
			link.Routes = append(link.Routes, route)
		}
	}
	return link, nil
}

func applyInterface(nic network.Interface) error {
	if nic.Binding == network.SRIOV {
		return nil // the guest has the device
	}
	if nic.Binding == network.Tap {
		link, err := netlink.LinkByName(nic.Tap)
		if err != nil {
			return fmt.Errorf("find %s: %w", nic.Tap, err)
		}
		return up(link)
	}
	bridge, err := ensureBridge(nic)
	if err != nil {
		return err
	}
	if err := applyIPv6(nic, bridge); err != nil {
		return err
	}
	address := nic.Gateway
	if nic.Binding == network.Bridge {
		address = network.BridgeAddress
		// The pod has addresses that are not this network's business.
		if err := sysctl("ipv4/conf/"+nic.BridgeLink+"/arp_ignore", "1"); err != nil {
			return err
		}
		if err := movePodLink(nic, bridge); err != nil {
			return err
		}
	}
	if nic.Guest.IsValid() {
		if err := ensureAddress(bridge, address); err != nil {
			return err
		}
	}
	if err := ensureTap(nic, bridge); err != nil {
		return err
	}
	if nic.Binding != network.Masquerade || !nic.Guest.IsValid() {
		return nil
	}
	// 127.0.0.1 of the pod reaches the guest through the bridge.
	if err := sysctl("ipv4/conf/"+nic.BridgeLink+"/route_localnet", "1"); err != nil {
		return err
	}
	return sysctl("ipv4/ip_forward", "1")
}

func ensureBridge(nic network.Interface) (netlink.Link, error) {
	link, err := netlink.LinkByName(nic.BridgeLink)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = nic.BridgeLink, nic.MTU
		// Set, or the bridge would take the lowest address of its ports and change it with them.
		attrs.HardwareAddr, err = net.ParseMAC(nic.BridgeMAC())
		if err != nil {
			return nil, err
		}
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return nil, fmt.Errorf("add bridge %s: %w", nic.BridgeLink, err)
		}
		link, err = netlink.LinkByName(nic.BridgeLink)
	}
	if err != nil {
		return nil, fmt.Errorf("find bridge %s: %w", nic.BridgeLink, err)
	}
	return link, up(link)
}

func ensureAddress(link netlink.Link, prefix netip.Prefix) error {
	address := &netlink.Addr{IPNet: &net.IPNet{
		IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()),
	}}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("address %s on %s: %w", prefix, link.Attrs().Name, err)
	}
	return nil
}

// movePodLink hands the pod's link to the guest: a port of the bridge, with another MAC and without
// its addresses.
func movePodLink(nic network.Interface, bridge netlink.Link) error {
	link, err := netlink.LinkByName(nic.PodLink)
	if err != nil {
		return fmt.Errorf("find %s: %w", nic.PodLink, err)
	}
	if link.Attrs().MasterIndex != bridge.Attrs().Index {
		mac, err := net.ParseMAC(macaddress.Stable(nic.MAC, nic.PodLink))
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return fmt.Errorf("take %s down: %w", nic.PodLink, err)
		}
		if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
			return fmt.Errorf("give %s another MAC: %w", nic.PodLink, err)
		}
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("put %s into %s: %w", nic.PodLink, nic.BridgeLink, err)
		}
	}
	// It would speak for itself with a link-local address.
	if err := sysctl("ipv6/conf/"+nic.PodLink+"/disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", nic.PodLink, err)
	}
	for _, a := range addrs {
		if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove %s from %s: %w", a.IPNet, nic.PodLink, err)
		}
	}
	return up(link)
}

func ensureTap(nic network.Interface, bridge netlink.Link) error {
	link, err := netlink.LinkByName(nic.Tap)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		if err := addTap(nic.Tap, nic.Queues > 1); err != nil {
			return fmt.Errorf("add tap %s: %w", nic.Tap, err)
		}
		link, err = netlink.LinkByName(nic.Tap)
	}
	if err != nil {
		return fmt.Errorf("find tap %s: %w", nic.Tap, err)
	}
	if link.Attrs().MTU != nic.MTU {
		if err := netlink.LinkSetMTU(link, nic.MTU); err != nil {
			return fmt.Errorf("MTU %d on %s: %w", nic.MTU, nic.Tap, err)
		}
	}
	if link.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("put %s into %s: %w", nic.Tap, nic.BridgeLink, err)
		}
	}
	return up(link)
}

// addTap makes a persistent tap that the launcher's user may open: once, or once for each queue.
func addTap(name string, queues bool) error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if queues {
		flags |= unix.IFF_MULTI_QUEUE
	}
	request.SetUint16(flags)
	fd := int(f.Fd())
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	for _, set := range []struct {
		request uint
		value   int
		name    string
	}{
		{unix.TUNSETOWNER, names.User, "TUNSETOWNER"},
		{unix.TUNSETGROUP, names.Group, "TUNSETGROUP"},
		{unix.TUNSETPERSIST, 1, "TUNSETPERSIST"},
	} {
		if err := unix.IoctlSetInt(fd, set.request, set.value); err != nil {
			return fmt.Errorf("%s: %w", set.name, err)
		}
	}
	return nil
}

func up(link netlink.Link) error {
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s up: %w", link.Attrs().Name, err)
	}
	return nil
}

// sysctl writes net/<key> of the thread's network namespace, which /proc/sys/net shows.
func sysctl(key, value string) error {
	if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl net/%s: %w", key, err)
	}
	return nil
}
