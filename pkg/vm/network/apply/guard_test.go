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
	"github.com/virtkit/virtkit/tests/frames"
)

// hostOf is the interface of a guest that its pod network has given two addresses of each family.
func hostOf() network.Interface {
	nic := network.Interface{
		Name: "default", Binding: network.Bridge, PodLink: "eth0", BridgeLink: "k6t-eth0", Tap: "tap0",
		MAC: frames.MAC.String(), MTU: 1450, Guard: &network.Guard{IPv4: true, IPv6: true},
	}
	nic.Guard.Addresses = frames.Addresses()
	return nic
}

func frameOf(name string, kind network.Spoof, data []byte) frames.Frame {
	return frames.Frame{Name: name, Kind: kind, Data: data}
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
		Guest: netip.MustParseAddr("2001:db8::5"), Bits: 64, Router: netip.MustParseAddr("fe80::1"),
	}
	free := func(list []frames.Frame) []frames.Frame {
		for i := range list {
			list[i].Kind = ""
		}
		return list
	}
	for name, tc := range map[string]struct {
		nic  network.Interface
		sent []frames.Frame
	}{
		"with addresses":    {hostOf(), append(frames.Always(), frames.Bound()...)},
		"without addresses": {unmanaged, append(frames.Always(), free(frames.Bound())...)},
		"without a guard":   {open, free(append(frames.Always(), frames.Bound()...))},
		"with a router": {routed, append(frames.Always(),
			frameOf("from the router's address", network.SpoofIP,
				frames.IPv6("fe80::1", "fe80::9", unix.IPPROTO_UDP, 64, frames.UDP(1, 2, "x"))),
			frameOf("NA for the router", network.SpoofND,
				frames.ND("fe80::7", frames.AllNodes, 136, frames.About("fe80::1"), frames.Option(2, frames.MAC))),
			frameOf("DAD for the router", network.SpoofND,
				frames.ND("::", "ff02::1:ff00:1", 135, frames.About("fe80::1"))),
		)},
		"IPv4 alone": {one, []frames.Frame{
			frameOf("IPv4", "",
				frames.IPv4("198.51.100.5", "198.51.100.9", unix.IPPROTO_UDP, frames.UDP(4000, 53, "x"))),
			frameOf("link-local", "",
				frames.IPv6("fe80::7", "fe80::9", unix.IPPROTO_UDP, 64, frames.UDP(4000, 53, "x"))),
			frameOf("IPv6", network.SpoofIP,
				frames.IPv6("2001:db8::5", "2001:db8::9", unix.IPPROTO_UDP, 64, frames.UDP(4000, 53, "x"))),
			frameOf("the second IPv4", network.SpoofIP,
				frames.IPv4("198.51.100.6", "198.51.100.9", unix.IPPROTO_UDP, frames.UDP(1, 2, "x"))),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, tc.nic)
			for _, f := range tc.sent {
				want := maps.Clone(g.dropped(t))
				if f.Kind != "" {
					want[f.Kind]++
				}
				if got := g.passes(t, f.Data); got != (f.Kind == "") {
					t.Errorf("%s: it passes: %v", f.Name, got)
				}
				if got := g.dropped(t); !maps.Equal(got, want) {
					t.Errorf("%s: counters %v, want %v", f.Name, got, want)
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
	spoofed := []frames.Frame{
		frameOf("", network.SpoofMAC, frames.Ether(frames.OtherMAC, 0x88b6, make([]byte, 46))),
		frameOf("", network.SpoofARP, frames.ARP(frames.KindARP, 2, frames.MAC, "198.51.100.1", "198.51.100.9")),
		frameOf("", network.SpoofIP,
			frames.IPv4("198.51.100.9", "198.51.100.1", unix.IPPROTO_UDP, frames.UDP(1, 2, "x"))),
		frameOf("", network.SpoofRouter, frames.ND("fe80::7", frames.AllNodes, 134, make([]byte, 12))),
	}
	own := frames.IPv4("198.51.100.5", "198.51.100.9", unix.IPPROTO_UDP, frames.UDP(4000, 53, "x"))
	rounds, done := 0, false
	for ; !done || rounds%len(spoofed) != 0; rounds++ {
		if g.passes(t, spoofed[rounds%len(spoofed)].Data) {
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
		if slices.ContainsFunc(spoofed, func(f frames.Frame) bool { return f.Kind == kind }) {
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
	g.passes(t, frames.Ether(frames.OtherMAC, 0x88b6, make([]byte, 46)))
	got, err := Dropped(g.pod, both)
	if err != nil || got["default"][network.SpoofMAC] != 1 || got["red"][network.SpoofMAC] != 0 || len(got) != 2 {
		t.Errorf("counters %v, %v", got, err)
	}
	free := hostOf()
	free.Guard = nil
	if err := Guard(g.pod, network.Plan{Interfaces: []network.Interface{free, red}}); err != nil {
		t.Fatal(err)
	}
	if !g.passes(t, frames.Ether(frames.OtherMAC, 0x88b6, make([]byte, 46))) {
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
