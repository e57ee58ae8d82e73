package apply

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// hostOf is the interface of a guest that its pod network has given two addresses of each family.
func hostOf() network.Interface {
	nic := network.Interface{
		Name: "default", Binding: network.Bridge, PodLink: "eth0", BridgeLink: "k6t-eth0", Tap: "tap0",
		MAC: guestMAC.String(), MTU: 1450, Guard: &network.Guard{IPv4: true, IPv6: true},
	}
	for _, a := range []string{"10.42.1.5", "fd42::5", "10.42.1.6", "fd42::6"} {
		nic.Guard.Addresses = append(nic.Guard.Addresses, netip.MustParseAddr(a))
	}
	return nic
}

const (
	arpKind, rarpKind = 0x0806, 0x8035
	everybody         = "ff02::1"
	request, reply    = 1, 2
)

// frame is one that a guest sends; kind is empty for an honest one, which a guard lets through.
type frame struct {
	name string
	kind network.Spoof
	data []byte
}

// always are frames of which any guard thinks the same, whether or not somebody has given the guest addresses.
func always() []frame {
	ra := icmp6Of("fe80::7", everybody, 134, make([]byte, 12))
	sLink, tLink := option(1, guestMAC), option(2, guestMAC)
	wrongS, wrongT := option(1, otherMAC), option(2, otherMAC)
	once := option(14, []byte{1, 2, 3, 4, 5, 6})
	na := func(options ...[]byte) []byte {
		return ndFrame("fd42::5", everybody, 136, about("fd42::5"), slices.Concat(options...))
	}
	ns := func(options ...[]byte) []byte {
		return ndFrame("fd42::5", "ff02::1:ff00:9", 135, about("fd42::9"), slices.Concat(options...))
	}
	rs := func(options ...[]byte) []byte {
		return ndFrame("fe80::7", "ff02::2", 133, make([]byte, 4), slices.Concat(options...))
	}
	offer := udpOf(67, 68, "offer")
	toClient6 := func(next byte, before ...[]byte) []byte {
		return ip6Frame("fe80::7", "fe80::9", next, 64, slices.Concat(before...), udpOf(547, 546, "advertise"))
	}
	asIP := func(f []byte) []byte { return slices.Concat([]byte{0xaa, 0xaa, 3, 0, 0, 0}, f[12:]) }
	llc := func(f []byte) []byte { return ether(guestMAC, uint16(len(asIP(f))), asIP(f)) }
	return []frame{
		{"IPv4", "", ipFrame("10.42.1.5", "10.42.1.9", unix.IPPROTO_UDP, udpOf(4000, 53, "x"))},
		{"IPv4 with a VLAN tag", "", tagged(ipFrame("10.42.1.5", "10.42.1.9", unix.IPPROTO_UDP, udpOf(1, 2, "x")), 7)},
		{"IPv6", "", ip6Frame("fd42::5", "fd42::9", unix.IPPROTO_UDP, 64, udpOf(4000, 53, "x"))},
		{"a fragment", "", ip6Frame("fd42::5", "fd42::9", unix.IPPROTO_FRAGMENT, 64,
			[]byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 1}, udpOf(4000, 53, "longer"))},
		{"another protocol", "", ether(guestMAC, 0x88b6, make([]byte, 46))},
		{"LLC of another", "", ether(guestMAC, 46, []byte{0x42, 0x42, 3}, make([]byte, 43))},
		{"ARP request", "", arpFrame(arpKind, request, guestMAC, "10.42.1.5", "10.42.1.9")},
		{"gratuitous ARP", "", arpFrame(arpKind, request, guestMAC, "10.42.1.5", "10.42.1.5")},
		{"ARP reply", "", arpFrame(arpKind, reply, guestMAC, "10.42.1.6", "10.42.1.9")},
		{"ARP probe", "", arpFrame(arpKind, request, guestMAC, "0.0.0.0", "10.42.1.5")},
		{"RARP of a migration", "", arpFrame(rarpKind, 3, guestMAC, "0.0.0.0", "0.0.0.0")},
		{"DHCP request", "", ipFrame("0.0.0.0", "255.255.255.255", unix.IPPROTO_UDP, udpOf(68, 67, "discover"))},
		{"DHCP renewal", "", ipFrame("10.42.1.5", "10.42.1.1", unix.IPPROTO_UDP, udpOf(68, 67, "request"))},
		{"DHCPv6 request", "", ip6Frame("fe80::7", "ff02::1:2", unix.IPPROTO_UDP, 1, udpOf(546, 547, "solicit"))},
		{"NA", "", na(tLink)},
		{"NA without option", "", na()},
		{
			"NA of a link-local address of privacy", "",
			ndFrame("fe80::aaaa:1", everybody, 136, about("fe80::aaaa:1"), tLink),
		},
		{"NS", "", ns(sLink)},
		{"NS with nonce", "", ns(sLink, once)},
		{"NS with nonce first", "", ns(once, sLink)},
		{"DAD", "", ndFrame("::", "ff02::1:ff00:5", 135, about("fd42::5"))},
		{"DAD with nonce", "", ndFrame("::", "ff02::1:ff00:7", 135, about("fe80::7"), once)},
		{"RS", "", rs(sLink)},
		{"RS without an address", "", ndFrame("::", "ff02::2", 133, make([]byte, 4))},
		{"RS with nonce", "", rs(sLink, once)},
		{"MLD without an address", "", ip6Frame("::", "ff02::16", unix.IPPROTO_HOPOPTS, 1,
			[]byte{unix.IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0}, icmp6Of("::", "ff02::16", 143, make([]byte, 4)))},

		{"another MAC", network.SpoofMAC, ether(otherMAC, 0x88b6, make([]byte, 46))},
		{"another MAC with a VLAN tag", network.SpoofMAC, tagged(ether(otherMAC, 0x88b6, make([]byte, 46)), 7)},
		{"two VLAN tags", network.SpoofHidden, tagged(ndFrame("fe80::7", everybody, 134, make([]byte, 12)), 0, 0)},
		{
			"three VLAN tags", network.SpoofHidden,
			tagged(arpFrame(arpKind, reply, otherMAC, "10.42.1.9", "0.0.0.0"), 0, 0, 7),
		},
		{"IPv6 as LLC", network.SpoofHidden, llc(ndFrame("fe80::7", everybody, 134, make([]byte, 12)))},
		{
			"ARP as LLC behind a VLAN tag", network.SpoofHidden,
			tagged(llc(arpFrame(arpKind, reply, otherMAC, "10.42.1.9", "0.0.0.0")), 7),
		},
		{"ARP with another MAC", network.SpoofARP, arpFrame(arpKind, reply, otherMAC, "10.42.1.5", "10.42.1.9")},
		{"RARP with another MAC", network.SpoofARP, arpFrame(rarpKind, 3, otherMAC, "0.0.0.0", "0.0.0.0")},
		{
			"ARP of another kind", network.SpoofARP,
			ether(guestMAC, arpKind, []byte{0, 6, 8, 0, 6, 4, 0, 2}, make([]byte, 38)),
		},
		{"ARP that ends early", network.SpoofARP, ether(guestMAC, arpKind, []byte{0, 1, 8, 0, 6, 4, 0, 2})},
		{"DHCP offer", network.SpoofDHCP, ipFrame("10.42.1.5", "255.255.255.255", unix.IPPROTO_UDP, offer)},
		{
			"DHCP offer with a VLAN tag", network.SpoofDHCP,
			tagged(ipFrame("10.42.1.5", "255.255.255.255", unix.IPPROTO_UDP, offer), 0),
		},
		{"DHCPv6 advertise", network.SpoofDHCP, toClient6(unix.IPPROTO_UDP)},
		{
			"DHCPv6 behind an option", network.SpoofDHCP,
			toClient6(unix.IPPROTO_DSTOPTS, []byte{unix.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0}),
		},
		{
			"DHCPv6 in a fragment", network.SpoofDHCP,
			toClient6(unix.IPPROTO_FRAGMENT, []byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 1}),
		},
		{"DHCPv6 behind an option in a fragment", network.SpoofHidden, toClient6(unix.IPPROTO_FRAGMENT,
			[]byte{unix.IPPROTO_DSTOPTS, 0, 0, 1, 0, 0, 0, 1, unix.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0})},
		{"RA", network.SpoofRouter, ip6Frame("fe80::7", everybody, unix.IPPROTO_ICMPV6, 255, ra)},
		{
			"RA with a VLAN tag", network.SpoofRouter,
			tagged(ip6Frame("fe80::7", everybody, unix.IPPROTO_ICMPV6, 255, ra), 0),
		},
		{"redirect", network.SpoofRouter, ndFrame("fe80::7", "fe80::9", 137, make([]byte, 36))},
		{"RA behind an option", network.SpoofHidden, ip6Frame("fe80::7", everybody, unix.IPPROTO_DSTOPTS, 255,
			[]byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, ra)},
		{"RA in a fragment", network.SpoofHidden, ip6Frame("fe80::7", everybody, unix.IPPROTO_FRAGMENT, 255,
			[]byte{unix.IPPROTO_ICMPV6, 0, 0, 0, 0, 0, 0, 1}, ra)},
		{"NA with another MAC", network.SpoofND, na(wrongT)},
		{"NA with a second MAC", network.SpoofND, na(tLink, wrongT)},
		{"NA with another MAC behind a nonce", network.SpoofND, na(once, wrongT)},
		{"NA that ends early", network.SpoofND, ndFrame("fd42::5", everybody, 136, make([]byte, 4))},
		{"NS with another MAC", network.SpoofND, ns(wrongS)},
		{"NS with another MAC behind a nonce", network.SpoofND, ns(once, wrongS)},
		{"NS with a second MAC", network.SpoofND, ns(sLink, wrongS)},
		{"RS with another MAC", network.SpoofND, rs(wrongS)},
	}
}

// bound are frames that are spoofed by a guest with known addresses, and honest where only its network knows them.
func bound() []frame {
	return []frame{
		{
			"another IPv4 address", network.SpoofIP,
			ipFrame("10.42.1.9", "10.42.1.1", unix.IPPROTO_UDP, udpOf(1, 2, "x")),
		},
		{
			"another IPv4 address with a VLAN tag", network.SpoofIP,
			tagged(ipFrame("10.42.1.9", "10.42.1.1", unix.IPPROTO_UDP, udpOf(1, 2, "x")), 0),
		},
		{"no IPv4 address", network.SpoofIP, ipFrame("0.0.0.0", "255.255.255.255", unix.IPPROTO_UDP, udpOf(1, 2, "x"))},
		{
			"no IPv4 address to one host", network.SpoofIP,
			ipFrame("0.0.0.0", "10.42.1.9", unix.IPPROTO_UDP, udpOf(68, 67, "x")),
		},
		{"ARP for another", network.SpoofARP, arpFrame(arpKind, reply, guestMAC, "10.42.1.1", "10.42.1.9")},
		{
			"gratuitous ARP for another", network.SpoofARP,
			arpFrame(arpKind, request, guestMAC, "10.42.1.9", "10.42.1.9"),
		},
		{
			"another IPv6 address", network.SpoofIP,
			ip6Frame("fd42::9", "fd42::1", unix.IPPROTO_UDP, 64, udpOf(1, 2, "x")),
		},
		{
			"a temporary IPv6 address", network.SpoofIP,
			ip6Frame("fd42::aaaa:1", "fd42::1", unix.IPPROTO_UDP, 64, udpOf(1, 2, "x")),
		},
		{"no IPv6 address", network.SpoofIP, ip6Frame("::", "fd42::1", unix.IPPROTO_UDP, 64, udpOf(1, 2, "x"))},
		{"NA for another", network.SpoofND, ndFrame("fd42::5", everybody, 136, about("fd42::9"), option(2, guestMAC))},
		{"DAD for another", network.SpoofND, ndFrame("::", "ff02::1:ff00:9", 135, about("fd42::9"))},
		{"NS from another", network.SpoofIP, ndFrame("fd42::9", everybody, 135, about("fd42::1"), option(1, guestMAC))},
	}
}

// Each spoofed frame is dropped and counted once, by its kind, and each honest one passes.
func TestGuard(t *testing.T) {
	unmanaged := hostOf()
	unmanaged.Name, unmanaged.PodLink, unmanaged.Tap = "red", "podb1f51a511f1", "tapb1f51a511f1"
	unmanaged.BridgeLink, unmanaged.Guard = "k6t-b1f51a511f1", &network.Guard{}
	open := unmanaged
	open.Guard = nil
	one := hostOf()
	one.Guard = &network.Guard{IPv4: true, IPv6: true, Addresses: one.Guard.Addresses[:1]}
	routed := hostOf()
	routed.IPv6 = &network.IPv6{
		Guest: netip.MustParseAddr("fd42::5"), Bits: 64, Router: netip.MustParseAddr("fe80::1"),
	}
	free := func(list []frame) []frame {
		for i := range list {
			list[i].kind = ""
		}
		return list
	}
	for name, tc := range map[string]struct {
		nic    network.Interface
		frames []frame
	}{
		"with addresses":    {hostOf(), append(always(), bound()...)},
		"without addresses": {unmanaged, append(always(), free(bound())...)},
		"without a guard":   {open, free(append(always(), bound()...))},
		"with a router": {routed, append(always(),
			frame{
				"from the router's address", network.SpoofIP,
				ip6Frame("fe80::1", "fe80::9", unix.IPPROTO_UDP, 64, udpOf(1, 2, "x")),
			},
			frame{
				"NA for the router", network.SpoofND,
				ndFrame("fe80::7", everybody, 136, about("fe80::1"), option(2, guestMAC)),
			},
			frame{"DAD for the router", network.SpoofND, ndFrame("::", "ff02::1:ff00:1", 135, about("fe80::1"))},
		)},
		"IPv4 alone": {one, []frame{
			{"IPv4", "", ipFrame("10.42.1.5", "10.42.1.9", unix.IPPROTO_UDP, udpOf(4000, 53, "x"))},
			{"link-local", "", ip6Frame("fe80::7", "fe80::9", unix.IPPROTO_UDP, 64, udpOf(4000, 53, "x"))},
			{"IPv6", network.SpoofIP, ip6Frame("fd42::5", "fd42::9", unix.IPPROTO_UDP, 64, udpOf(4000, 53, "x"))},
			{"the second IPv4", network.SpoofIP, ipFrame("10.42.1.6", "10.42.1.9", unix.IPPROTO_UDP, udpOf(1, 2, "x"))},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, tc.nic)
			for _, f := range tc.frames {
				want := maps.Clone(g.dropped(t))
				if f.kind != "" {
					want[f.kind]++
				}
				if got := g.passes(t, f.data); got != (f.kind == "") {
					t.Errorf("%s: it passes: %v", f.name, got)
				}
				if got := g.dropped(t); !maps.Equal(got, want) {
					t.Errorf("%s: counters %v, want %v", f.name, got, want)
				}
			}
		})
	}
}

// A guard is there before anything can send by the tap: also when the pod's network cannot be made after it.
func TestGuardComesFirst(t *testing.T) {
	pod, nic := newNetns(t), hostOf()
	plan := network.Plan{Interfaces: []network.Interface{nic}}
	if err := Apply(pod, plan); err == nil {
		t.Fatal("there is a network without the pod's link")
	}
	run(t, pod, func() error {
		if _, err := netlink.LinkByName(nic.Tap); !errors.As(err, new(netlink.LinkNotFoundError)) {
			t.Errorf("the tap is there: %v", err)
		}
		return nil
	})
	got, err := Dropped(pod, plan)
	if err != nil || len(got[nic.Name]) != len(network.Spoofs) {
		t.Errorf("counters %v, %v", got, err)
	}
}

// While rules are replaced by the same or by others, each honest frame passes, no spoofed one does, and each of these
// is counted once.
func TestGuardIsReplacedAtOnce(t *testing.T) {
	g := newGuarded(t, hostOf())
	fewer := hostOf()
	fewer.Guard = &network.Guard{IPv4: true, IPv6: true, Addresses: fewer.Guard.Addresses[:1]}
	plans := []network.Plan{g.plan, {Interfaces: []network.Interface{fewer}}}
	const times = 100
	replaced := make(chan error, 1)
	go func() {
		var failed error
		for i := range times {
			failed = errors.Join(failed, Guard(g.pod, plans[i%2]))
		}
		replaced <- failed
	}()
	spoofed := []frame{
		{"", network.SpoofMAC, ether(otherMAC, 0x88b6, make([]byte, 46))},
		{"", network.SpoofARP, arpFrame(arpKind, reply, guestMAC, "10.42.1.1", "10.42.1.9")},
		{"", network.SpoofIP, ipFrame("10.42.1.9", "10.42.1.1", unix.IPPROTO_UDP, udpOf(1, 2, "x"))},
		{"", network.SpoofRouter, ndFrame("fe80::7", everybody, 134, make([]byte, 12))},
	}
	own := ipFrame("10.42.1.5", "10.42.1.9", unix.IPPROTO_UDP, udpOf(4000, 53, "x"))
	rounds, done := 0, false
	for ; !done || rounds%len(spoofed) != 0; rounds++ {
		if g.passes(t, spoofed[rounds%len(spoofed)].data) {
			t.Fatalf("round %d: a spoofed frame passed", rounds)
		}
		if !g.passes(t, own) {
			t.Fatalf("round %d: an honest frame did not pass", rounds)
		}
		select {
		case err := <-replaced:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	for kind, n := range g.dropped(t) {
		want := uint64(0)
		if slices.ContainsFunc(spoofed, func(f frame) bool { return f.kind == kind }) {
			want = uint64(rounds / len(spoofed))
		}
		if n != want {
			t.Errorf("%s: %d were counted, and %d sent", kind, n, want)
		}
	}
	t.Logf("%d rounds", rounds)
}

// A guest with very many interfaces has a guard at each.
func TestGuardOfMany(t *testing.T) {
	pod := newNetns(t)
	var plan network.Plan
	for i := range 60 {
		nic := hostOf()
		nic.Name, nic.Tap = fmt.Sprint("net", i), fmt.Sprint("tap", i)
		plan.Interfaces = append(plan.Interfaces, nic)
	}
	for range 2 {
		if err := Guard(pod, plan); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Dropped(pod, plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, nic := range plan.Interfaces {
		if len(got[nic.Name]) != len(network.Spoofs) {
			t.Errorf("%s has counters %v", nic.Name, got[nic.Name])
		}
	}
}

// Two interfaces have their own rules, and one that has no guard any more has none.
func TestGuardsAreApart(t *testing.T) {
	red := hostOf()
	red.Name, red.PodLink, red.Tap, red.BridgeLink = "red", "pod1", "tap1", "k6t-1"
	g := newGuarded(t, hostOf())
	both := network.Plan{Interfaces: []network.Interface{hostOf(), red}}
	if err := Guard(g.pod, both); err != nil {
		t.Fatal(err)
	}
	g.passes(t, ether(otherMAC, 0x88b6, make([]byte, 46)))
	got, err := Dropped(g.pod, both)
	if err != nil || got["default"][network.SpoofMAC] != 1 || got["red"][network.SpoofMAC] != 0 || len(got) != 2 {
		t.Errorf("counters %v, %v", got, err)
	}
	free := hostOf()
	free.Guard = nil
	if err := Guard(g.pod, network.Plan{Interfaces: []network.Interface{free, red}}); err != nil {
		t.Fatal(err)
	}
	if !g.passes(t, ether(otherMAC, 0x88b6, make([]byte, 46))) {
		t.Error("the interface without a guard has the rules of before")
	}
	for range 2 {
		if err := Guard(g.pod, network.Plan{Interfaces: []network.Interface{free}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Dropped(g.pod, network.Plan{Interfaces: []network.Interface{free}}); err != nil || len(got) != 0 {
		t.Errorf("counters of nobody %v, %v", got, err)
	}
}
