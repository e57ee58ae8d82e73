package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// forwardSix is the setting by which the machine forwards IPv6.
const forwardSix = "net/ipv6/conf/all/forwarding"

// Settings returns the kernel settings that the machine needs for an instance, as minimum values, in the order in which
// they are to be raised: forwarding for what leaves it, and enough inotify instances for two nodes full of pods.
//
// A machine that forwards IPv6 no longer listens to the router advertisements that it may have its own addresses and
// default route of, unless the link says so by accept_ra: so links first.
func Settings(in *instance.Instance) ([]map[string]int, error) {
	common := map[string]int{
		"net/ipv4/ip_forward":           1,
		"fs/inotify/max_user_instances": 8192,
		"fs/inotify/max_user_watches":   524288,
	}
	if !in.Has(instance.V6) {
		return []map[string]int{common}, nil
	}
	links, err := advertised()
	if err != nil {
		return nil, err
	}
	return []map[string]int{links, {forwardSix: 1}, common}, nil
}

// advertised returns accept_ra=2 for the links that the kernel has configured by router advertisements, as long as the
// machine does not forward.
func advertised() (map[string]int, error) {
	forwards, err := readSetting(forwardSix)
	if err != nil || forwards != 0 {
		return nil, err
	}
	routes, err := netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{Protocol: unix.RTPROT_RA},
		netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	addresses, err := netlink.AddrList(nil, unix.AF_INET6)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	learned := map[int]bool{}
	for _, r := range routes {
		learned[r.LinkIndex] = true
	}
	for _, a := range addresses {
		if a.Flags&unix.IFA_F_PERMANENT == 0 {
			learned[a.LinkIndex] = true
		}
	}
	settings := map[string]int{}
	for index := range learned {
		link, err := netlink.LinkByIndex(index)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find link %d: %w", index, err)
		}
		name := "net/ipv6/conf/" + link.Attrs().Name + "/accept_ra"
		value, err := readSetting(name)
		if err != nil {
			return nil, err
		}
		if value == 1 { // 0 is another program's, or nobody's
			settings[name] = 2
		}
	}
	return settings, nil
}

func readSetting(name string) (int, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return 0, fmt.Errorf("read kernel setting: %w", err)
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("read kernel setting %s: %w", name, err)
	}
	return value, nil
}

// writeSettings sets IPv6 settings, by their names below net/ipv6/conf, in the network namespace of this thread.
func writeSettings(settings map[string]string) error {
	for name, value := range settings {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name), []byte(value), 0); err != nil {
			return fmt.Errorf("set net/ipv6/conf/%s: %w", name, err)
		}
	}
	return nil
}

// sixSettings prepares the machine's bridge for IPv6: a node advertises nothing to the machine.
func sixSettings(bridge string) error {
	return writeSettings(map[string]string{
		bridge + "/disable_ipv6": "0", bridge + "/accept_ra": "0", bridge + "/accept_dad": "0",
	})
}

// nodeSixSettings prepares a node for IPv6: it forwards, and its links have addresses that are usable at once. A link
// that waits for its link-local address does not find the next hop of what it forwards.
func nodeSixSettings() error {
	return writeSettings(map[string]string{
		"all/disable_ipv6": "0", "all/forwarding": "1", "default/accept_dad": "0", "default/accept_ra": "0",
		"eth0/accept_dad": "0", "eth0/accept_ra": "0",
	})
}

// within calls do on a thread in the network namespace of process pid, the init of node n.
func within(n instance.Node, pid int, do func() error) error {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return fmt.Errorf("open network namespace of %s: %w", n.NodeName(), err)
	}
	defer ns.Close()
	return onThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter network namespace of %s: %w", n.NodeName(), err)
		}
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", n.NodeName(), err)
		}
		return nil
	})
}

// onThread calls do on a thread of its own, which ends with it and may so be left in any namespace.
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- do()
	}()
	return <-done
}

// Routed returns the networks that the machine has addresses in or routes to, default routes aside.
func Routed() ([]netip.Prefix, error) {
	var routed []netip.Prefix
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netlink.RouteList(nil, family)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst == nil {
				continue
			}
			addr, ok := netip.AddrFromSlice(r.Dst.IP)
			bits, _ := r.Dst.Mask.Size()
			if ok && bits > 0 {
				routed = append(routed, netip.PrefixFrom(addr.Unmap(), bits))
			}
		}
	}
	return routed, nil
}

// IPv6 returns why the machine can have no nodes with IPv6, or nil. It tries what the machine, kube-proxy and guests
// need in a network namespace that nobody sees.
func IPv6() error {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return errors.New("its kernel has no IPv6, or was booted without it")
	}
	switch off, err := readSetting("net/ipv6/conf/all/disable_ipv6"); {
	case err != nil:
		return err
	case off != 0:
		return errors.New("IPv6 is switched off by the kernel setting net.ipv6.conf.all.disable_ipv6")
	}
	if err := changeable(forwardSix); err != nil {
		return err
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return tryIPv6()
	})
}

// changeable returns an error for a setting that is neither 1 nor can be set.
func changeable(name string) error {
	value, err := readSetting(name)
	if err != nil || value != 0 {
		return err
	}
	if err := unix.Access(filepath.Join("/proc/sys", name), unix.W_OK); err != nil {
		return fmt.Errorf("the kernel setting %s is off and cannot be changed: %w",
			strings.ReplaceAll(name, "/", "."), err)
	}
	return nil
}

// tryIPv6 does in a network namespace of the thread what nodes and pods do.
func tryIPv6() error {
	if err := writeSettings(map[string]string{"all/disable_ipv6": "0", "all/forwarding": "1"}); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback link: %w", err)
	}
	in := &instance.Instance{}
	if err := netlink.AddrAdd(lo, address(in.Slot.HostIP(instance.V6), in.Slot.NodeNet(instance.V6))); err != nil {
		return fmt.Errorf("a link can have no IPv6 address: %w", err)
	}
	if err := ensureTable(in, instance.V6); err != nil {
		return fmt.Errorf("its kernel cannot masquerade IPv6: %w", err)
	}
	return tryRules()
}
