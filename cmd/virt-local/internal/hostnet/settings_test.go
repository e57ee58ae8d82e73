package hostnet

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// isolated calls do on a thread in a network namespace of its own.
func isolated(t *testing.T, do func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if err := IPv6(); err != nil {
		t.Skipf("this machine cannot have IPv6: %v", err)
	}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// bridge makes a link that is up, and returns it.
func bridge(name string) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return link, netlink.LinkSetUp(link)
}

// Links that have their addresses or routes by router advertisements go on listening to them when the machine forwards,
// and no others do. They come first: the kernel drops what it has learned at the moment when it begins to forward.
func TestSettings(t *testing.T) {
	in := &instance.Instance{}
	if steps, err := Settings(in); err != nil || len(steps) != 1 || steps[0][forwardSix] != 0 {
		t.Errorf("with IPv4 alone: %v, %v", steps, err)
	}
	in.IPFamily = instance.Dual
	isolated(t, func() error {
		route, err := bridge("route")
		if err != nil {
			return err
		}
		address, err := bridge("address")
		if err != nil {
			return err
		}
		for _, name := range []string{"static", "off"} {
			if _, err := bridge(name); err != nil {
				return err
			}
		}
		network := ipNet(netip.MustParsePrefix("2001:db8::/64"))
		for _, link := range []string{"route", "off"} {
			l, err := netlink.LinkByName(link)
			if err != nil {
				return err
			}
			err = netlink.RouteAdd(&netlink.Route{
				LinkIndex: l.Attrs().Index, Dst: network, Protocol: unix.RTPROT_RA, Priority: l.Attrs().Index,
			})
			if err != nil {
				return fmt.Errorf("add route to %s: %w", link, err)
			}
		}
		if err := writeSettings(map[string]string{"off/accept_ra": "0"}); err != nil {
			return err
		}
		if err := netlink.AddrAdd(address, &netlink.Addr{
			IPNet: ipNet(netip.MustParsePrefix("2001:db8:1::1/64")), ValidLft: 60, PreferedLft: 60,
		}); err != nil {
			return err
		}
		steps, err := Settings(in)
		if err != nil {
			return err
		}
		want := map[string]int{"net/ipv6/conf/route/accept_ra": 2, "net/ipv6/conf/address/accept_ra": 2}
		if diff := cmp.Diff(want, steps[0]); diff != "" || len(steps) != 3 || steps[1][forwardSix] != 1 {
			t.Errorf("steps %v (-want +got):\n%s", steps, diff)
		}
		if err := writeSettings(map[string]string{"route/accept_ra": "2", "all/forwarding": "1"}); err != nil {
			return err
		}
		routes, err := netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{
			LinkIndex: route.Attrs().Index, Protocol: unix.RTPROT_RA,
		}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_OIF)
		if err != nil || len(routes) != 1 {
			t.Errorf("routes by advertisements once the machine forwards: %v, %v", routes, err)
		}
		// A machine that forwards already is as its owner wants it.
		if steps, err = Settings(in); err != nil || len(steps[0]) != 0 {
			t.Errorf("on a machine that forwards: %v, %v", steps, err)
		}
		return nil
	})
}

// Up makes a bridge whose addresses of both families are usable at once, and a table for each; a second Up changes
// nothing, and Down leaves nothing.
func TestUpDown(t *testing.T) {
	for family, want := range map[string][]string{
		instance.IPv4: {"10.99.5.1/24"},
		instance.IPv6: {"fd76:6c6f:6305::1/64"},
		instance.Dual: {"10.99.5.1/24", "fd76:6c6f:6305::1/64"},
	} {
		in := &instance.Instance{Slot: 5, IPFamily: family}
		isolated(t, func() error {
			for range 2 {
				if err := Up(in); err != nil {
					return err
				}
				link, err := netlink.LinkByName("vlocal5")
				if err != nil {
					return err
				}
				addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
				if err != nil {
					return err
				}
				var got []string
				for _, a := range addresses {
					if a.Scope == unix.RT_SCOPE_UNIVERSE {
						got = append(got, a.IPNet.String())
					}
					if a.Scope == unix.RT_SCOPE_UNIVERSE && a.Flags&unix.IFA_F_TENTATIVE != 0 {
						t.Errorf("%s: %s waits for duplicates", family, a.IPNet)
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: addresses (-want +got):\n%s", family, diff)
				}
				if tables, err := (&nftables.Conn{}).ListTables(); err != nil || len(tables) != len(want) {
					t.Errorf("%s: %d tables, %v; want %d", family, len(tables), err, len(want))
				}
			}
			if err := Down(in); err != nil {
				return err
			}
			tables, err := (&nftables.Conn{}).ListTables()
			if err != nil || len(tables) != 0 {
				t.Errorf("%s: %d tables are left, %v", family, len(tables), err)
			}
			if _, err := netlink.LinkByName("vlocal5"); err == nil {
				t.Errorf("%s: the bridge is left", family)
			}
			return nil
		})
	}
}

// A machine on which IPv6 is switched off has none, and says by which setting.
func TestIPv6SwitchedOff(t *testing.T) {
	isolated(t, func() error {
		if err := IPv6(); err != nil {
			t.Errorf("where it is on: %v", err)
		}
		if err := writeSettings(map[string]string{"all/disable_ipv6": "1"}); err != nil {
			return err
		}
		if err := IPv6(); err == nil || !strings.Contains(err.Error(), "net.ipv6.conf.all.disable_ipv6") {
			t.Errorf("where it is off: %v", err)
		}
		return nil
	})
}

// A node has IPv6 where new network namespaces begin without.
func TestNodeSettings(t *testing.T) {
	isolated(t, func() error {
		if err := writeSettings(map[string]string{"all/disable_ipv6": "1", "default/disable_ipv6": "1"}); err != nil {
			return err
		}
		link, err := bridge("eth0")
		if err != nil {
			return err
		}
		if err := nodeSixSettings(); err != nil {
			return err
		}
		pod, err := bridge("pod")
		if err != nil {
			return err
		}
		for i, l := range []netlink.Link{link, pod} {
			six := netip.AddrFrom16([16]byte{0xfd, 0x76, 2: byte(i), 15: 1})
			if err := netlink.AddrAdd(l, address(six, netip.PrefixFrom(six, 64))); err != nil {
				t.Errorf("%s: %v", l.Attrs().Name, err)
			}
		}
		return nil
	})
}
