package apply

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
	"github.com/virtkit/virtkit/tests/frames"
)

// thirdMAC is that of another guest.
var thirdMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}

// tcpOf returns a segment of TCP: S opens, A answers, SA does both.
func tcpOf(from, to uint16, flags string) []byte {
	out := binary.BigEndian.AppendUint16(nil, from)
	out = binary.BigEndian.AppendUint16(out, to)
	out = append(out, make([]byte, 8)...)
	var bits byte
	for _, f := range flags {
		bits |= map[rune]byte{'S': tcpSYN, 'A': tcpACK, 'R': tcpRST, 'F': tcpFIN}[f]
	}
	return append(out, 0x50, bits, 0xff, 0xff, 0, 0, 0, 0)
}

// from puts a frame's MACs in place.
func from(source, destination net.HardwareAddr, frame []byte) []byte {
	return slices.Concat(destination, source, frame[12:])
}

// policedPod is a pod with policies, with the test in the place of its guest's QEMU and of its network.
type policedPod struct{ *guarded }

func newPoliced(t *testing.T, of multipolicy.Interface) policedPod {
	t.Helper()
	nic := hostOf()
	nic.Guard = nil
	p := policedPod{newGuarded(t, nic)}
	p.police(t, of)
	return p
}

func (p policedPod) rules(of multipolicy.Interface) multipolicy.Rules {
	return multipolicy.Rules{p.plan.Interfaces[0].Name: of}
}

func (p policedPod) police(t *testing.T, of multipolicy.Interface) {
	t.Helper()
	if err := Police(p.pod, p.plan, p.rules(of)); err != nil {
		t.Fatal(err)
	}
}

// mark returns a frame of ARP that is always let through, the next of them.
func (p policedPod) mark() []byte {
	p.sent++
	target := netip.AddrFrom4([4]byte{10, 200, byte(p.sent >> 8), byte(p.sent)})
	return arpFrame(frames.KindARP, request, guestMAC, "10.42.1.5", target.String())
}

// out reports whether a frame of the guest reaches the network, in whether one of the network reaches the guest.
func (p policedPod) out(t *testing.T, frame []byte) bool {
	t.Helper()
	last := p.mark()
	p.send(t, frame)
	p.send(t, last)
	passed := false
	for {
		switch got := p.receive(t); {
		case bytes.Equal(got, last):
			return passed
		case bytes.Equal(got, frame):
			passed = true
		}
	}
}

func (p policedPod) in(t *testing.T, frame []byte) bool {
	t.Helper()
	last := from(otherMAC, allMAC, p.mark())
	p.arrive(t, frame)
	p.arrive(t, last)
	passed := false
	for {
		switch got := p.hear(t); {
		case bytes.Equal(got, last):
			return passed
		case bytes.Equal(got, frame):
			passed = true
		}
	}
}

// arrive sends a frame from the network.
func (p policedPod) arrive(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := unix.Write(p.lan, frame); err != nil {
		t.Fatalf("send from the network: %v", err)
	}
}

// hear returns the next frame that the guest receives.
func (p policedPod) hear(t *testing.T) []byte {
	t.Helper()
	const header = 10
	buf := make([]byte, 4096)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		fd := int(p.tap.Fd())
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		if n <= 0 {
			continue
		}
		if n, err = unix.Read(fd, buf); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(buf[header:n])
	}
	t.Fatal("the guest receives nothing")
	return nil
}

// A guest with policies receives and sends what a rule allows, the answers to that, and what hosts need to find each
// other. Each step builds on those before it.
func TestPolicies(t *testing.T) {
	p := newPoliced(t, policies())
	tcp, udp, sctp := byte(unix.IPPROTO_TCP), byte(unix.IPPROTO_UDP), byte(unix.IPPROTO_SCTP)
	toGuest := func(source net.HardwareAddr, frame []byte) []byte { return from(source, guestMAC, frame) }
	out := func(frame []byte) []byte { return from(guestMAC, otherMAC, frame) }
	in := func(frame []byte) []byte { return toGuest(otherMAC, frame) }
	const me, peer, stranger, server = "10.42.1.5", "10.42.1.9", "10.42.1.10", "10.42.1.53"
	part := func(f []byte, offset uint16, more bool) []byte {
		f = slices.Clone(f)
		value := offset / 8
		if more {
			value |= 0x2000
		}
		header := f[14:34]
		binary.BigEndian.PutUint16(header[6:], value)
		header[10], header[11] = 0, 0
		binary.BigEndian.PutUint16(header[10:], frames.Checksum(header))
		return f
	}
	echo := func(kind byte) []byte { return []byte{kind, 0, 0, 0, 0, 1, 0, 1} }
	for _, c := range []struct {
		name   string
		frame  []byte
		toward string
		passes bool
	}{
		{"an open port", in(ipFrame(peer, me, tcp, tcpOf(4000, 80, "S"))), "in", true},
		{"its answer", out(ipFrame(me, peer, tcp, tcpOf(80, 4000, "SA"))), "out", true},
		{"the connection", in(ipFrame(peer, me, tcp, tcpOf(4000, 80, "A"))), "in", true},
		{"a connection to where one came from", out(ipFrame(me, peer, tcp, tcpOf(80, 4000, "S"))), "out", false},
		{"an answer to another port", out(ipFrame(me, peer, tcp, tcpOf(80, 4001, "SA"))), "out", false},
		{"an answer from another port", out(ipFrame(me, peer, tcp, tcpOf(81, 4000, "A"))), "out", false},
		{"a port that is not open", in(ipFrame(peer, me, tcp, tcpOf(4000, 81, "S"))), "in", false},
		{"the port by UDP", in(ipFrame(peer, me, udp, udpOf(4000, 80, "x"))), "in", false},
		{"somebody else", in(ipFrame(stranger, me, tcp, tcpOf(4000, 80, "S"))), "in", false},
		{"IPv6", in(ip6Frame("fd42::9", "fd42::5", tcp, 64, tcpOf(4000, 80, "S"))), "in", true},
		{"IPv6's answer", out(ip6Frame("fd42::5", "fd42::9", tcp, 64, tcpOf(80, 4000, "SA"))), "out", true},
		{"IPv6 of somebody else", in(ip6Frame("fd42::a", "fd42::5", tcp, 64, tcpOf(4000, 80, "S"))), "in", false},
		{"the first of a range", in(ipFrame(peer, me, udp, udpOf(4000, 1000, "x"))), "in", true},
		{"the last of a range", in(ipFrame(peer, me, udp, udpOf(4000, 2000, "x"))), "in", true},
		{"behind a range", in(ipFrame(peer, me, udp, udpOf(4000, 2001, "x"))), "in", false},
		{"with a VLAN tag", tagged(in(ipFrame(stranger, me, udp, udpOf(4000, 1000, "x"))), 7), "in", false},
		{"with two VLAN tags", tagged(in(ipFrame(peer, me, udp, udpOf(4000, 1000, "x"))), 7, 8), "in", false},
		{"a guest, by its MAC", toGuest(thirdMAC, ipFrame(stranger, me, udp, udpOf(1, 2, "x"))), "in", true},
		{"a block", in(ipFrame("10.42.2.1", me, sctp, udpOf(1, 2, "1234"))), "in", true},
		{"a block, another protocol", in(ipFrame("10.42.2.1", me, udp, udpOf(1, 2, "x"))), "in", false},
		{"an exception of a block", in(ipFrame("10.42.2.200", me, sctp, udpOf(1, 2, "1234"))), "in", false},
		{"everybody", in(ipFrame("192.0.2.1", me, tcp, tcpOf(1, 22, "S"))), "in", true},
		{"everybody by IPv6", in(ip6Frame("2001:db8::1", "fd42::5", tcp, 64, tcpOf(1, 22, "S"))), "in", true},
		{"what is not IP", in(ether(otherMAC, 0x88b6, make([]byte, 46))), "in", false},
		{"what is not IP, sent", out(ether(guestMAC, 0x88b6, make([]byte, 46))), "out", false},
		{"an echo", in(ipFrame(peer, me, unix.IPPROTO_ICMP, echo(8))), "in", false},
		{"an error", in(ipFrame(peer, me, unix.IPPROTO_ICMP, echo(3))), "in", true},
		{"an error of IPv6", in(ip6Frame("fd42::a", "fd42::5", unix.IPPROTO_ICMPV6, 64,
			icmp6Of("fd42::a", "fd42::5", 2, make([]byte, 4)))), "in", true},
		{"an error that the guest sends", out(ipFrame(me, peer, unix.IPPROTO_ICMP, echo(3))), "out", false},

		{"a question", out(ipFrame(me, server, udp, udpOf(5000, 53, "who"))), "out", true},
		{"its answer", in(ipFrame(server, me, udp, udpOf(53, 5000, "me"))), "in", true},
		{"an answer that was not asked for", in(ipFrame(server, me, udp, udpOf(53, 5001, "me"))), "in", false},
		{"an answer of somebody else", in(ipFrame(stranger, me, udp, udpOf(53, 5000, "me"))), "in", false},
		{"a question by IPv6", out(ip6Frame("fd42::5", "fd42::53", udp, 64, udpOf(5000, 53, "who"))), "out", true},
		{"its answer by IPv6", in(ip6Frame("fd42::53", "fd42::5", udp, 64, udpOf(53, 5000, "me"))), "in", true},
		{"a question elsewhere", out(ipFrame(me, peer, udp, udpOf(5000, 53, "who"))), "out", false},

		{"the rest of a packet", in(part(ipFrame(peer, me, udp, make([]byte, 16)), 8, false)), "in", false},
		{"the first part", in(part(ipFrame(peer, me, udp, udpOf(4000, 1000, "")), 0, true)), "in", true},
		{"the rest of it", in(part(ipFrame(peer, me, udp, make([]byte, 16)), 8, false)), "in", true},
		{"the rest of another's", in(part(ipFrame(stranger, me, udp, make([]byte, 16)), 8, false)), "in", false},
		{"the first part by IPv6", in(ip6Frame("fd42::9", "fd42::5", unix.IPPROTO_FRAGMENT, 64,
			[]byte{udp, 0, 0, 1, 0, 0, 0, 1}, udpOf(4000, 1000, ""))), "in", true},
		{"the rest by IPv6", in(ip6Frame("fd42::9", "fd42::5", unix.IPPROTO_FRAGMENT, 64,
			[]byte{udp, 0, 0, 8, 0, 0, 0, 1}, make([]byte, 8))), "in", true},
		{"the rest of another's by IPv6", in(ip6Frame("fd42::a", "fd42::5", unix.IPPROTO_FRAGMENT, 64,
			[]byte{udp, 0, 0, 8, 0, 0, 0, 1}, make([]byte, 8))), "in", false},

		{"ARP", in(arpFrame(frames.KindARP, reply, otherMAC, stranger, me)), "in", true},
		{"RARP of a migration", out(arpFrame(frames.KindRARP, 3, guestMAC, "0.0.0.0", "0.0.0.0")), "out", true},
		{"NS", in(ndFrame("fd42::a", "fd42::5", 135, about("fd42::5"))), "in", true},
		{"NA", out(ndFrame("fd42::5", "fd42::a", 136, about("fd42::5"))), "out", true},
		{"NS from afar", out(ip6Frame("fd42::5", "2001:db8::1", unix.IPPROTO_ICMPV6, 64,
			icmp6Of("fd42::5", "2001:db8::1", 135, about("fd42::5")))), "out", false},
		{
			"DHCP", from(guestMAC, allMAC, ipFrame("0.0.0.0", "255.255.255.255", udp, udpOf(68, 67, "discover"))),
			"out", true,
		},
		{"DHCP to one host", out(ipFrame(me, stranger, udp, udpOf(68, 67, "request"))), "out", false},
		{"DHCP's answer", in(ipFrame("10.42.1.1", me, udp, udpOf(67, 68, "offer"))), "in", true},
		{"DHCPv6", out(ip6Frame("fe80::7", "ff02::1:2", udp, 1, udpOf(546, 547, "solicit"))), "out", true},
	} {
		var passed bool
		if c.toward == "in" {
			passed = p.in(t, c.frame)
		} else {
			passed = p.out(t, c.frame)
		}
		if passed != c.passes {
			t.Errorf("%s: passes %t", c.name, passed)
		}
	}
	got, err := Passed(p.pod, p.plan, p.rules(policies()))
	if err != nil {
		t.Fatal(err)
	}
	counts := got[p.plan.Interfaces[0].Name]
	if counts.DroppedIngress != 16 || counts.DroppedEgress != 8 || counts.Egress["names"] != 2 ||
		counts.Ingress["web"] != 7 || counts.Ingress["anybody"] != 2 {
		t.Errorf("%+v", counts)
	}
}

// A direction that no policy is for stays open, and what the guest begins there is answered.
func TestPoliciesForOneDirection(t *testing.T) {
	const me, peer = "10.42.1.5", "10.42.1.9"
	question := from(guestMAC, otherMAC, ipFrame(me, peer, unix.IPPROTO_UDP, udpOf(5000, 53, "who")))
	answer := from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_UDP, udpOf(53, 5000, "me")))
	deaf := newPoliced(t, multipolicy.Interface{
		Policies: []multipolicy.Policy{{Name: "deaf", Ingress: &multipolicy.Direction{}}},
	})
	if deaf.in(t, answer) {
		t.Error("what nothing allows reaches the guest")
	}
	if !deaf.out(t, question) || !deaf.in(t, answer) || !deaf.out(t, deaf.honest()) {
		t.Error("the guest may not send, or is not answered")
	}
	dumb := newPoliced(t, multipolicy.Interface{
		Policies: []multipolicy.Policy{{Name: "dumb", Egress: &multipolicy.Direction{}}},
	})
	if dumb.out(t, question) {
		t.Error("the guest sends what nothing allows")
	}
	ask := from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_UDP, udpOf(5000, 53, "who")))
	told := from(guestMAC, otherMAC, ipFrame(me, peer, unix.IPPROTO_UDP, udpOf(53, 5000, "me")))
	if !dumb.in(t, ask) || !dumb.out(t, told) {
		t.Error("the guest is not asked, or may not answer")
	}
}

// elements counts what is in a set of connections of IPv4 and stays there.
func (p policedPod) elements(t *testing.T, name string) int {
	t.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(int(p.pod.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	set, err := conn.GetSetByName(&nftables.Table{Name: policyTable, Family: nftables.TableFamilyBridge},
		p.plan.Interfaces[0].Tap+"-"+name+"4")
	if err != nil {
		t.Fatal(err)
	}
	found, err := conn.GetSetElements(set)
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(found, func(e nftables.SetElement) bool { return e.Expires <= fading }))
}

// A connection is remembered for long when both ends have sent, and for a short while before that and when it ends; one
// that is opened anew is remembered anew.
func TestConnectionsAreRemembered(t *testing.T) {
	p := newPoliced(t, policies())
	const me, peer = "10.42.1.5", "10.42.1.9"
	in := func(flags string) []byte {
		return from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_TCP, tcpOf(4000, 80, flags)))
	}
	out := func(flags string) []byte {
		return from(guestMAC, otherMAC, ipFrame(me, peer, unix.IPPROTO_TCP, tcpOf(80, 4000, flags)))
	}
	for _, c := range []struct {
		name                string
		sent, received      []byte
		begun, flows, ended int
	}{
		{"opened", nil, in("S"), 1, 0, 0},
		{"the same side goes on", nil, in("A"), 1, 0, 0},
		{"answered", out("SA"), nil, 1, 1, 0},
		{"goes on", nil, in("A"), 1, 1, 0},
		{"one side ends", out("FA"), nil, 1, 0, 1},
		{"the other one sends on", nil, in("A"), 1, 0, 1},
		{"the other side ends", nil, in("FA"), 1, 0, 1},
		{"the last packet", out("A"), nil, 1, 0, 1},
		{"opened anew", nil, in("S"), 1, 0, 0},
		{"refused", out("RA"), nil, 1, 0, 1},
	} {
		if c.sent != nil && !p.out(t, c.sent) || c.received != nil && !p.in(t, c.received) {
			t.Errorf("%s: does not pass", c.name)
		}
		begun, flows, ended := p.elements(t, setBegun+stepIn), p.elements(t, setFlows), p.elements(t, setClosing)
		if begun != c.begun || flows != c.flows || ended != c.ended {
			t.Errorf("%s: %d begun, %d connections, %d that end", c.name, begun, flows, ended)
		}
	}
}

// One end that begins very many connections takes no room from those of the other one, or from those that are answered;
// what is not remembered is counted.
func TestTooManyConnections(t *testing.T) {
	before := maxFlows
	maxFlows = 8
	t.Cleanup(func() { maxFlows = before })
	p := newPoliced(t, policies())
	const me, peer, server = "10.42.1.5", "10.42.1.9", "10.42.1.53"
	for port := range uint16(10) {
		if !p.in(t, from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_TCP, tcpOf(5000+port, 80, "S")))) {
			t.Errorf("connection %d does not pass", port)
		}
	}
	got, err := Passed(p.pod, p.plan, p.rules(policies()))
	if n := got[p.plan.Interfaces[0].Name].Forgotten; err != nil || n != 2 || p.elements(t, setBegun+stepIn) != 8 {
		t.Errorf("%d are forgotten, %v", n, err)
	}
	question := from(guestMAC, otherMAC, ipFrame(me, server, unix.IPPROTO_UDP, udpOf(5000, 53, "who")))
	answer := from(otherMAC, guestMAC, ipFrame(server, me, unix.IPPROTO_UDP, udpOf(53, 5000, "me")))
	if !p.out(t, question) || !p.in(t, answer) || p.elements(t, setFlows) != 1 {
		t.Error("the guest's question is not answered")
	}
}

// A connection that ends where there is no room for more of these ends all the same.
func TestTooManyEndings(t *testing.T) {
	before := maxClosing
	maxClosing = 2
	t.Cleanup(func() { maxClosing = before })
	p := newPoliced(t, policies())
	const me, peer = "10.42.1.5", "10.42.1.9"
	for port := range uint16(4) {
		if !p.in(t, from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_TCP, tcpOf(5000+port, 80, "S")))) {
			t.Fatalf("connection %d does not pass", port)
		}
		for _, flags := range []string{"SA", "A", "FA", "A"} {
			answer := from(guestMAC, otherMAC, ipFrame(me, peer, unix.IPPROTO_TCP, tcpOf(80, 5000+port, flags)))
			if !p.out(t, answer) {
				t.Errorf("connection %d: %s is dropped", port, flags)
			}
		}
	}
	if n := p.elements(t, setClosing); n != 2 {
		t.Errorf("%d connections end", n)
	}
}

// A first fragment that ends before TCP's flags belongs to no connection: it may open one.
func TestTinyFragment(t *testing.T) {
	p := newPoliced(t, policies())
	const me, peer = "10.42.1.5", "10.42.1.9"
	open := from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_TCP, tcpOf(4000, 80, "S")))
	answer := from(guestMAC, otherMAC, ipFrame(me, peer, unix.IPPROTO_TCP, tcpOf(80, 4000, "SA")))
	if !p.in(t, open) || !p.out(t, answer) {
		t.Fatal("there is no connection")
	}
	tiny := from(guestMAC, otherMAC, ipFrame(me, peer, unix.IPPROTO_TCP, tcpOf(80, 4000, "S")[:8]))
	binary.BigEndian.PutUint16(tiny[20:], 0x2000)
	binary.BigEndian.PutUint16(tiny[24:], 0)
	binary.BigEndian.PutUint16(tiny[24:], frames.Checksum(tiny[14:34]))
	if p.out(t, tiny) {
		t.Error("the guest opens a connection by fragments")
	}
}

// Counters are read while the policies come and go, and their table with them.
func TestPassedWhileTheyChange(t *testing.T) {
	p := newPoliced(t, policies())
	done := make(chan error, 1)
	go func() {
		for n := range 200 {
			of := policies()
			if n%2 == 0 {
				of.Policies = nil
			}
			if err := Police(p.pod, p.plan, p.rules(of)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		if _, err := Passed(p.pod, p.plan, p.rules(policies())); err != nil {
			t.Error(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// Other rules take the place of those before; connections and counters stay, and nothing else is left of them.
func TestPoliciesChange(t *testing.T) {
	p := newPoliced(t, policies())
	const me, peer = "10.42.1.5", "10.42.1.9"
	open := from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_TCP, tcpOf(4000, 80, "S")))
	goesOn := from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_TCP, tcpOf(4000, 80, "A")))
	if !p.in(t, open) {
		t.Fatal("what is allowed does not reach the guest")
	}
	closed := multipolicy.Interface{Policies: []multipolicy.Policy{{Name: "web", Ingress: &multipolicy.Direction{}}}}
	p.police(t, closed)
	if p.in(t, open) || !p.in(t, goesOn) {
		t.Error("a new connection passes, or one that there was does not")
	}
	got, err := Passed(p.pod, p.plan, p.rules(closed))
	if counts := got["default"]; err != nil || counts.Ingress["web"] != 1 || counts.DroppedIngress != 1 {
		t.Errorf("%+v, %v", counts, err)
	}
	p.police(t, policies())
	p.police(t, closed)
	text := p.list(t)
	for _, gone := range []string{"a4-", "a6-", "m0", "-in-0-0", "-out-0-0"} {
		if strings.Contains(text, gone) {
			t.Errorf("%s is left in:\n%s", gone, text)
		}
	}
	p.police(t, multipolicy.Interface{})
	if text := p.list(t); text != "" || !p.in(t, open) {
		t.Errorf("without policies there is %s", text)
	}
}

// list names what is in the table.
func (p policedPod) list(t *testing.T) string {
	t.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(int(p.pod.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	found, err := policiesBefore(conn, &nftables.Table{Name: policyTable, Family: nftables.TableFamilyBridge})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(slices.Concat(found.chains, found.sets, found.counters), "\n")
}

// While rules take the place of others no frame passes that both drop, and none is lost that both let through.
func TestPoliciesAreReplacedAtOnce(t *testing.T) {
	p := newPoliced(t, policies())
	others := policies()
	others.Policies = slices.Clone(others.Policies)
	slices.Reverse(others.Policies)
	const me, peer, stranger = "10.42.1.5", "10.42.1.9", "10.42.1.10"
	const times = 100
	replaced := make(chan error, 1)
	go func() {
		var failed error
		for i := range times {
			of := []multipolicy.Interface{others, policies()}[i%2]
			failed = errors.Join(failed, Police(p.pod, p.plan, p.rules(of)))
		}
		replaced <- failed
	}()
	rounds := 0
	for i := uint16(0); ; i++ {
		if p.in(t, from(otherMAC, guestMAC, ipFrame(stranger, me, unix.IPPROTO_UDP, udpOf(i+1, 1500, "x")))) {
			t.Fatalf("frame %d passes, which no rules allow", i)
		}
		if !p.in(t, from(otherMAC, guestMAC, ipFrame(peer, me, unix.IPPROTO_UDP, udpOf(i+1, 1500, "x")))) {
			t.Fatalf("frame %d is lost, which all rules allow", i)
		}
		rounds++
		select {
		case err := <-replaced:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d rounds", rounds)
			return
		default:
		}
	}
}
