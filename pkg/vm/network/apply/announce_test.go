package apply

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/tests/frames"
)

// The network of a guest that has come hears which addresses it has, of both families, from the guest's MAC.
func TestAnnounce(t *testing.T) {
	nic := hostOf()
	nic.Guest, nic.Bits = netip.MustParseAddr("198.51.100.5"), 24
	nic.IPv6 = &network.IPv6{Guest: netip.MustParseAddr("2001:db8::5"), Bits: 64}
	g := newGuarded(t, nic)
	if err := Announce(g.pod, g.plan); err != nil {
		t.Fatal(err)
	}
	arp := frames.ARP(frames.KindARP, request, frames.MAC, "198.51.100.5", "198.51.100.5")
	body := frames.About("2001:db8::5")
	body[0] = 0x20 // override
	na := frames.ND("2001:db8::5", frames.AllNodes, neighborAdvertisement, body, frames.Option(2, frames.MAC))
	copy(na, []byte{0x33, 0x33, 0, 0, 0, 1})
	want := [][]byte{arp, na}
	for deadline := time.Now().Add(10 * time.Second); len(want) > 0 && time.Now().Before(deadline); {
		got := g.receive(t)
		switch i := slices.IndexFunc(want, func(w []byte) bool { return bytes.Equal(got, w) }); {
		case i >= 0:
			want = slices.Delete(want, i, i+1)
		case got[12] == unix.ETH_P_ARP>>8 && got[13] == unix.ETH_P_ARP&0xff:
			t.Errorf("another one: %x", got)
		}
	}
	for _, w := range want {
		t.Errorf("it did not come: %x", w)
	}
}

// A plan without such addresses announces nothing, and needs no link.
func TestAnnounceNothing(t *testing.T) {
	nic := masquerade()
	if err := Announce(newNetns(t), network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Error(err)
	}
}
