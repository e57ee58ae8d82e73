//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

// overheard are the frames of ARP and ICMPv6 that have come by the link of a guest's pod.
type overheard struct {
	mu     sync.Mutex
	frames [][]byte
}

// overhear listens on the link of a guest's pod to one of its networks until the test ends: to what others say there.
func (g *guest) overhear(t *testing.T, name string) *overheard {
	t.Helper()
	networks := g.vmi(t).Spec.Networks
	i := slices.IndexFunc(networks, func(n v1.Network) bool { return n.Name == name })
	found := processes(t, string(g.pod(t).UID))
	if i < 0 || len(found) == 0 {
		t.Fatalf("%s has no network %s, or no process: %v", g.name, name, found)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", found[0].PID))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var fd int
	err = apply.In(ns, func() error {
		link, err := net.InterfaceByName(network.LinkOf(networks[i]))
		if err != nil {
			return err
		}
		const all = 0x0300 // ETH_P_ALL, big-endian
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "frames of "+name)
	o := &overheard{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, err := file.Read(buf)
			if err != nil {
				return
			}
			arp := n >= 42 && buf[12] == 0x08 && buf[13] == 0x06
			icmp6 := n >= 78 && buf[12] == 0x86 && buf[13] == 0xdd && buf[20] == unix.IPPROTO_ICMPV6
			if arp || icmp6 {
				o.mu.Lock()
				o.frames = append(o.frames, bytes.Clone(buf[:n]))
				o.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { file.Close(); <-done })
	return o
}

// announced reports whether somebody has said, unasked, that an address is at a MAC.
func (o *overheard) announced(mac net.HardwareAddr, a netip.Addr) bool {
	const neighbourAdvertisement, solicited = 136, 0x40
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.frames, func(f []byte) bool {
		if a.Is4() {
			return f[12] == 0x08 && bytes.Equal(f[22:28], mac) && bytes.Equal(f[28:32], a.AsSlice()) &&
				bytes.Equal(f[38:42], a.AsSlice())
		}
		return f[12] == 0x86 && bytes.Equal(f[6:12], mac) && f[54] == neighbourAdvertisement && f[58]&solicited == 0 &&
			bytes.Equal(f[62:78], a.AsSlice())
	})
}

// hearsOf waits until a guest's addresses on a network have been announced there, from the guest's MAC.
func (o *overheard) hearsOf(t *testing.T, g *guest, name string, addresses ...string) {
	t.Helper()
	rows := g.vmi(t).Status.Interfaces
	i := slices.IndexFunc(rows, func(row v1.VirtualMachineInstanceNetworkInterface) bool { return row.Name == name })
	if i < 0 {
		t.Fatalf("%s has no interface %s in its status: %+v", g.name, name, rows)
	}
	mac, err := net.ParseMAC(rows[i].MAC)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		eventually(t, 20*time.Second, g.name+" is announced at "+a, func() string {
			if o.announced(mac, netip.MustParseAddr(a)) {
				return ""
			}
			return "nobody has said so"
		})
	}
}
