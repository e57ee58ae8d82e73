package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeCluster has: web (cluster IP 10.192.0.20, ports http/80 and dns/53 UDP), db (headless: db-0 at 10.128.1.5 ready,
// 10.128.2.6 ready without a host name, 10.128.2.7 not ready), ext (alias of example.org), many (headless, 60
// endpoints), and of both families: both (cluster IPs 10.192.0.21 and fd76::21, port http/80) and pair (headless:
// pair-0 at 10.128.1.5 and fd76:1::5, fd76:1::6 without a host name).
type fakeCluster struct{}

func (fakeCluster) Namespace(name string) bool { return name == "default" }

func (fakeCluster) Service(namespace, name string) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if namespace != "default" {
		return nil
	}
	switch name {
	case "web":
		svc.Spec.ClusterIP = "10.192.0.20"
		svc.Spec.Ports = []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
			{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
		}
	case "both":
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.192.0.21", []string{"10.192.0.21", "fd76::21"}
		svc.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
	case "db", "many", "pair":
		svc.Spec.ClusterIP = corev1.ClusterIPNone
		svc.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
	case "ext":
		svc.Spec.Type, svc.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
	default:
		return nil
	}
	return svc
}

func (f fakeCluster) ByIP(ip string) *corev1.Service {
	switch ip {
	case "10.192.0.20":
		return f.Service("default", "web")
	case "10.192.0.21", "fd76::21":
		return f.Service("default", "both")
	}
	return nil
}

func (fakeCluster) Endpoints(_, service string) []*discoveryv1.EndpointSlice {
	yes, no, port, tcp, name, host := true, false, int32(5432), corev1.ProtocolTCP, "sql", "db-0"
	ready, unready := discoveryv1.EndpointConditions{Ready: &yes}, discoveryv1.EndpointConditions{Ready: &no}
	slice := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}},
	}
	switch service {
	case "db":
		slice.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.128.2.6"}, Conditions: ready},
			{Addresses: []string{"10.128.1.5"}, Conditions: ready, Hostname: &host},
			{Addresses: []string{"10.128.2.7"}, Conditions: unready},
		}
	case "pair":
		host = "pair-0"
		slice.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.128.1.5"}, Conditions: ready, Hostname: &host},
		}
		six := &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv6, Ports: slice.Ports,
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"fd76:1::6"}, Conditions: ready},
				{Addresses: []string{"fd76:1::5"}, Conditions: ready, Hostname: &host},
			},
		}
		name := &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeFQDN, Ports: slice.Ports,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: ready}},
		}
		return []*discoveryv1.EndpointSlice{slice, six, name}
	case "many":
		for i := range 60 {
			slice.Endpoints = append(slice.Endpoints,
				discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.3.%d", i+1)}, Conditions: ready})
		}
	}
	return []*discoveryv1.EndpointSlice{slice}
}

func TestLookup(t *testing.T) {
	tests := []struct {
		name string
		// want is "forward", "nothing", "empty" (exists, no records) or the records.
		want string
	}{
		{"web.default.svc.cluster.local.", "A web.default.svc.cluster.local. 10.192.0.20"},
		{"WEB.Default.svc.cluster.local.", "A WEB.Default.svc.cluster.local. 10.192.0.20"},
		{
			"db.default.svc.cluster.local.",
			"A db.default.svc.cluster.local. 10.128.1.5, A db.default.svc.cluster.local. 10.128.2.6",
		},
		{"db-0.db.default.svc.cluster.local.", "A db-0.db.default.svc.cluster.local. 10.128.1.5"},
		{"10-128-2-6.db.default.svc.cluster.local.", "A 10-128-2-6.db.default.svc.cluster.local. 10.128.2.6"},
		{"10-128-2-7.db.default.svc.cluster.local.", "nothing"},
		{"x.web.default.svc.cluster.local.", "nothing"},
		{
			"_http._tcp.web.default.svc.cluster.local.",
			"SRV _http._tcp.web.default.svc.cluster.local. web.default.svc.cluster.local.:80",
		},
		{"_http._udp.web.default.svc.cluster.local.", "nothing"},
		{"_tcp.web.default.svc.cluster.local.", "empty"},
		{
			"_sql._tcp.db.default.svc.cluster.local.",
			"SRV _sql._tcp.db.default.svc.cluster.local. db-0.db.default.svc.cluster.local.:5432, " +
				"SRV _sql._tcp.db.default.svc.cluster.local. 10-128-2-6.db.default.svc.cluster.local.:5432",
		},
		{
			"both.default.svc.cluster.local.",
			"A both.default.svc.cluster.local. 10.192.0.21, A both.default.svc.cluster.local. fd76::21",
		},
		{
			"_http._tcp.both.default.svc.cluster.local.",
			"SRV _http._tcp.both.default.svc.cluster.local. both.default.svc.cluster.local.:80",
		},
		{
			"pair.default.svc.cluster.local.",
			"A pair.default.svc.cluster.local. 10.128.1.5, A pair.default.svc.cluster.local. fd76:1::5, " +
				"A pair.default.svc.cluster.local. fd76:1::6",
		},
		{
			"pair-0.pair.default.svc.cluster.local.",
			"A pair-0.pair.default.svc.cluster.local. 10.128.1.5, A pair-0.pair.default.svc.cluster.local. fd76:1::5",
		},
		{"fd76-1--6.pair.default.svc.cluster.local.", "A fd76-1--6.pair.default.svc.cluster.local. fd76:1::6"},
		{
			"_sql._tcp.pair.default.svc.cluster.local.",
			"SRV _sql._tcp.pair.default.svc.cluster.local. pair-0.pair.default.svc.cluster.local.:5432, " +
				"SRV _sql._tcp.pair.default.svc.cluster.local. fd76-1--6.pair.default.svc.cluster.local.:5432",
		},
		{"fd76-1--6.default.pod.cluster.local.", "A fd76-1--6.default.pod.cluster.local. fd76:1::6"},
		{"0--1.default.pod.cluster.local.", "A 0--1.default.pod.cluster.local. ::1"},
		{
			"1.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.7.D.F.ip6.arpa.",
			"PTR 1.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.7.D.F.ip6.arpa. " +
				"both.default.svc.cluster.local.",
		},
		{"2.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.7.d.f.ip6.arpa.", "forward"},
		{"d.f.ip6.arpa.", "forward"},
		{"12.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.7.d.f.ip6.arpa.", "forward"},
		{"ext.default.svc.cluster.local.", "CNAME ext.default.svc.cluster.local. example.org."},
		{"none.default.svc.cluster.local.", "nothing"},
		{"default.svc.cluster.local.", "empty"},
		{"other.svc.cluster.local.", "nothing"},
		{"svc.cluster.local.", "empty"},
		{"cluster.local.", "empty"},
		{"web.cluster.local.", "nothing"},
		{"1-2-3-4.default.pod.cluster.local.", "A 1-2-3-4.default.pod.cluster.local. 1.2.3.4"},
		{"1-2-3.default.pod.cluster.local.", "nothing"},
		{"1-2-3-4.other.pod.cluster.local.", "nothing"},
		{"dns-version.cluster.local.", "TXT dns-version.cluster.local. 1.1.0"},
		{"20.0.192.10.in-addr.arpa.", "PTR 20.0.192.10.in-addr.arpa. web.default.svc.cluster.local."},
		{"1.2.0.192.in-addr.arpa.", "forward"},
		{"example.org.", "forward"},
		{"mycluster.local.", "forward"},
		{".", "forward"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, describe(Lookup(fakeCluster{}, test.name))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func describe(a Answer) string {
	if !a.Ours {
		return "forward"
	}
	if !a.Exists {
		return "nothing"
	}
	var out []string
	add := func(kind string, records []Record) {
		for _, r := range records {
			out = append(out, kind+" "+r.String())
		}
	}
	add("A", a.A)
	if len(a.A) == 0 {
		add("SRV", a.SRV)
	}
	add("PTR", a.PTR)
	add("TXT", a.TXT)
	add("CNAME", a.CNAME)
	if len(out) == 0 {
		return "empty"
	}
	return strings.Join(out, ", ")
}

// listen opens a UDP and a TCP socket of one number. Another program may have the TCP port of a free UDP port.
func listen(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := net.Listen("tcp4", udp.LocalAddr().String())
		if err == nil {
			return udp, tcp
		}
		if closeErr := udp.Close(); !errors.Is(err, syscall.EADDRINUSE) || closeErr != nil {
			t.Fatal(errors.Join(err, closeErr))
		}
	}
	t.Fatal("no port is free for UDP and TCP alike")
	return nil, nil
}

// serve serves the fake cluster on loopback, with an upstream that knows only example.org, over TCP only.
func serve(t *testing.T) string {
	t.Helper()
	udp, tcp := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- Server{
			Cluster: fakeCluster{},
			Upstream: func(_ context.Context, _ string, query []byte) ([]byte, error) {
				if !strings.Contains(string(query), "example") {
					return nil, errors.New("no name server")
				}
				query[2] |= 0x80 // a response
				return query, nil
			},
		}.Serve(ctx, udp, tcp)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return udp.LocalAddr().String()
}

func ask1(t *testing.T, network, server, name string, typ dnsmessage.Type) dnsmessage.Message {
	t.Helper()
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET}},
	}
	packed, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := ask(ctx, network, server, packed)
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		t.Fatal(err)
	}
	if m.ID != 7 || !m.Response {
		t.Fatalf("header %+v", m.Header)
	}
	return m
}

func TestServer(t *testing.T) {
	server := serve(t)
	for _, network := range []string{"udp", "tcp"} {
		m := ask1(t, network, server, "web.default.svc.cluster.local.", dnsmessage.TypeA)
		if len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.AResource).A != [4]byte{10, 192, 0, 20} {
			t.Errorf("%s: answers %v", network, m.Answers)
		}
		// IPv6 of a name that exists is nothing, not an error: clients would else give up on the name.
		if m := ask1(t, network, server, "web.default.svc.cluster.local.",
			dnsmessage.TypeAAAA); m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 0 {
			t.Errorf("%s: AAAA: %v %v", network, m.RCode, m.Answers)
		}
		for typ, want := range map[dnsmessage.Type]dnsmessage.ResourceBody{
			dnsmessage.TypeA:    &dnsmessage.AResource{A: [4]byte{10, 192, 0, 21}},
			dnsmessage.TypeAAAA: &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("fd76::21").As16()},
		} {
			m := ask1(t, network, server, "both.default.svc.cluster.local.", typ)
			if len(m.Answers) != 1 || m.Answers[0].Body.GoString() != want.GoString() {
				t.Errorf("%s: %s of both families: %v", network, typ, m.Answers)
			}
		}
		if m := ask1(t, network, server, "none.default.svc.cluster.local.",
			dnsmessage.TypeA); m.RCode != dnsmessage.RCodeNameError || len(m.Authorities) != 1 {
			t.Errorf("%s: unknown name: %v", network, m)
		}
		if m := ask1(t, network, server, "example.org.", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeSuccess {
			t.Errorf("%s: upstream's name: %v", network, m.RCode)
		}
		if m := ask1(t, network, server, "invalid.", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeServerFailure {
			t.Errorf("%s: no upstream: %v", network, m.RCode)
		}
	}
	if m := ask1(t, "udp", server, "many.default.svc.cluster.local.", dnsmessage.TypeA); !m.Truncated ||
		len(m.Answers) != 0 {
		t.Errorf("60 addresses over UDP: truncated=%v, %d answers", m.Truncated, len(m.Answers))
	}
	if m := ask1(t, "tcp", server, "many.default.svc.cluster.local.", dnsmessage.TypeA); m.Truncated ||
		len(m.Answers) != 60 {
		t.Errorf("60 addresses over TCP: truncated=%v, %d answers", m.Truncated, len(m.Answers))
	}
	m := ask1(t, "udp", server, "_http._tcp.web.default.svc.cluster.local.", dnsmessage.TypeSRV)
	if len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.SRVResource).Port != 80 || len(m.Additionals) != 1 {
		t.Errorf("SRV: %v", m)
	}
}

// Targets of SRV records come with their addresses of both families, each once.
func TestServerTargets(t *testing.T) {
	server := serve(t)
	for name, want := range map[string][]dnsmessage.Type{
		"_http._tcp.both.default.svc.cluster.local.": {dnsmessage.TypeA, dnsmessage.TypeAAAA},
		"_sql._tcp.pair.default.svc.cluster.local.":  {dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeAAAA},
	} {
		var got []dnsmessage.Type
		for _, r := range ask1(t, "tcp", server, name, dnsmessage.TypeSRV).Additionals {
			got = append(got, r.Header.Type)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: additional records %v, want %v", name, got, want)
		}
	}
}

// The Service and its endpoints are of the cluster's families, and of one family what they were before there were two.
func TestObjects(t *testing.T) {
	four, six := netip.MustParseAddr("10.192.0.10"), netip.MustParseAddr("fd76::10")
	if svc := serviceObject([]netip.Addr{four}); svc.Spec.ClusterIP != "10.192.0.10" || svc.Spec.ClusterIPs != nil ||
		svc.Spec.IPFamilyPolicy != nil {
		t.Errorf("of IPv4: %+v", svc.Spec)
	}
	svc := serviceObject([]netip.Addr{four, six})
	if !slices.Equal(svc.Spec.ClusterIPs, []string{"10.192.0.10", "fd76::10"}) ||
		!slices.Equal(svc.Spec.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}) ||
		*svc.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyRequireDualStack {
		t.Errorf("of both: %+v", svc.Spec)
	}
	a, b := endpointsObject(four), endpointsObject(six)
	if a.Name == b.Name || a.AddressType != discoveryv1.AddressTypeIPv4 || b.AddressType !=
		discoveryv1.AddressTypeIPv6 {
		t.Errorf("endpoints %s of %s, %s of %s", a.Name, a.AddressType, b.Name, b.AddressType)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x00\x00\x01\x00\x01"))
	s := Server{
		Cluster:  fakeCluster{},
		Upstream: func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("none") },
	}
	f.Fuzz(func(_ *testing.T, query []byte) {
		s.answer(context.Background(), "udp", query)
	})
}

func TestNameservers(t *testing.T) {
	got := nameservers([]byte("# x\nnameserver 192.0.2.1\nsearch a\nnameserver\tfd00::1\nnameserver\n"))
	if !slices.Equal(got, []string{"192.0.2.1", "fd00::1"}) {
		t.Errorf("got %v", got)
	}
}
