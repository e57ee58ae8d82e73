package apply

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// mesh does in a pod as Istio's CNI plugin does before the guest's network is made: what comes by TCP for another port
// than the proxy's own goes to the proxy, and so does what leaves the pod by TCP.
func mesh(t *testing.T, pod *os.File) {
	t.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(int(pod.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []family{ipv4, ipv6} {
		table := conn.AddTable(&nftables.Table{Name: "mesh", Family: f.table})
		chain := conn.AddChain(&nftables.Chain{
			Name: "prerouting", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting,
			Priority: nftables.ChainPriorityNATDest,
		})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(iif("eth0"),
			protocol(unix.IPPROTO_TCP), port(15021), accept)})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(iif("eth0"),
			protocol(unix.IPPROTO_TCP), []expr.Any{
				&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(15006)},
				&expr.Redir{RegisterProtoMin: 1},
			})})
		chain = conn.AddChain(&nftables.Chain{
			Name: "output", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput,
			Priority: nftables.ChainPriorityNATDest,
		})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(
			link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "lo"), protocol(unix.IPPROTO_TCP), []expr.Any{
				&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(15001)},
				&expr.Redir{RegisterProtoMin: 1},
			})})
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// passOn stands for Istio's proxy: it passes on what comes to it, from an address of its own, to a port of the pod's.
func passOn(t *testing.T, pod *os.File, from netip.Addr, to string) {
	t.Helper()
	var l net.Listener
	run(t, pod, func() (err error) {
		l, err = net.Listen("tcp", ":15006")
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			said, err := askFrom(pod, from, to)
			if err != nil {
				said = err.Error()
			}
			_, _ = c.Write([]byte("by the proxy: " + said))
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

// hears waits for a datagram that a namespace sends to an address, and that arrives at a guest's port.
func hears(t *testing.T, from *os.File, to string, guest *os.File, port int) {
	t.Helper()
	var l net.PacketConn
	run(t, guest, func() (err error) {
		l, err = net.ListenUDP("udp", &net.UDPAddr{Port: port})
		return err
	})
	defer l.Close()
	run(t, from, func() error {
		c, err := net.Dial("udp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("datagram"))
		return err
	})
	buf := make([]byte, 16)
	_ = l.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, _, err := l.ReadFrom(buf); err != nil || string(buf[:n]) != "datagram" {
		t.Errorf("the guest got %q by UDP, %v", buf[:n], err)
	}
}

// A mesh's proxy in the pod gets what comes for the guest, keeps its own ports, and reaches the guest.
func TestMasqueradeBesideProxy(t *testing.T) {
	for name, ports := range map[string][]network.Port{
		"all ports": nil,
		"listed": {
			{Protocol: "TCP", Port: 22},
			{Protocol: "TCP", Port: 8080},
			{Protocol: "UDP", Port: 5000},
			{Protocol: "TCP", Port: 15021},
		},
	} {
		for _, in := range []struct {
			family                                            string
			pod, guest, gateway, peerAddress, loopback, proxy string
		}{
			{"IPv4", "10.42.1.5", "10.0.2.2", "10.0.2.1", "10.42.1.1", "127.0.0.1", "127.0.0.6"},
			{"IPv6", "fd42::5", "fd10:0:2::2", "fd10:0:2::1", "fd42::1", "::1", "::6"},
		} {
			t.Run(name+", "+in.family, func(t *testing.T) {
				pod, peer, guest := dualPod(t, true)
				addresses(t, pod, "lo", "::6/128") // as Istio does
				mesh(t, pod)
				nic := masquerade6(true)
				nic.Proxied, nic.Ports = true, ports
				if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
					t.Fatal(err)
				}
				attachGuest6(t, pod, guest, nic, nic.IPv6.Router)
				for _, port := range []int{22, 8080, 15021} {
					serve(t, guest, port)
				}
				for _, port := range []int{15000, 15021} {
					serve(t, pod, port)
				}
				at := func(host, port string) string { return net.JoinHostPort(host, port) }
				passOn(t, pod, netip.MustParseAddr(in.proxy), at(in.pod, "8080"))

				wantAnswer(t, "through the proxy", peer, at(in.pod, "8080"), "by the proxy: "+in.gateway)
				wantAnswer(t, "the proxy's health", peer, at(in.pod, "15021"), in.peerAddress)
				wantAnswer(t, "the proxy's health, from the pod", pod, at(in.pod, "15021"), in.pod)
				wantAnswer(t, "the proxy's own, from the pod", pod, at(in.loopback, "15000"), in.loopback)
				wantAnswer(t, "SSH", peer, at(in.pod, "22"), in.peerAddress)
				wantAnswer(t, "from the pod", pod, at(in.loopback, "8080"), in.gateway)
				wantAnswer(t, "from virt-handler", pod, at(in.guest, "8080"), in.gateway)
				wantAnswer(t, "from virt-handler, a port of the proxy's", pod, at(in.guest, "15021"), in.gateway)
				serve(t, pod, 15001)
				if got, err := ask(pod, at(in.guest, "9090")); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("where nothing listens %q, %v; want connection refused", got, err)
				}
				hears(t, peer, at(in.pod, "5000"), guest, 5000)
			})
		}
	}
}

// Without the wish for a proxy its ports are the guest's, and the pod's address is not the guest's in the pod. One that
// the namespace wishes does not stand between virt-handler and the guest, either.
func TestMasqueradeWithoutProxy(t *testing.T) {
	pod, peer, guest := dualPod(t, true)
	mesh(t, pod)
	nic := masquerade6(true)
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	attachGuest6(t, pod, guest, nic, nic.IPv6.Router)
	serve(t, guest, 15021)
	wantAnswer(t, "IPv4, from virt-handler", pod, "10.0.2.2:15021", "10.0.2.1")
	wantAnswer(t, "IPv6, from virt-handler", pod, "[fd10:0:2::2]:15021", "fd10:0:2::1")
	wantAnswer(t, "IPv4", peer, "10.42.1.5:15021", "10.42.1.1")
	wantAnswer(t, "IPv6", peer, "[fd42::5]:15021", "fd42::1")
	if got, err := ask(pod, "10.42.1.5:15021"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the pod's own address answered %q, %v; want connection refused", got, err)
	}
}
