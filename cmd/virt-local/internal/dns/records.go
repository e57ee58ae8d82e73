// Package dns is the cluster's name server: names of Services and their endpoints, as Kubernetes' DNS specification
// (version 1.1.0, https://github.com/kubernetes/dns/blob/master/docs/specification.md) has them, from
// what the API says; any other name is asked of the machine's own name servers.
//
// Messages are read and written by golang.org/x/net/dns/dnsmessage. CoreDNS with four plugins (kubernetes, forward,
// cache, errors) was built: 55 MB, and its kubernetes plugin has a client and caches of its own, where virt-local has
// informers already (Cluster). server.go on miekg/dns was tried: 156 lines instead of 273, and the tests pass. But
// 5,000 questions that wait for an upstream are 5,000 goroutines instead of 256, an idle TCP client holds the end of
// Serve for ten seconds, and version 1 gets fixes only.
package dns

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Domain is the cluster's domain.
const Domain = "cluster.local."

// Cluster has the objects that the answers are made from.
type Cluster interface {
	// Service returns a Service, or nil.
	Service(namespace, name string) *corev1.Service
	// ByIP returns the Service with a cluster IP, or nil.
	ByIP(ip string) *corev1.Service
	// Endpoints returns the slices of a Service.
	Endpoints(namespace, service string) []*discoveryv1.EndpointSlice
	// Namespace reports whether a namespace is there.
	Namespace(name string) bool
}

// Record is an answer: of A, PTR, CNAME, SRV or TXT data those fields that the type has.
type Record struct {
	Name   string
	A      netip.Addr // A, AAAA
	Target string     // PTR, CNAME, SRV
	Port   uint16     // SRV
	Text   string
}

// Answer has the records of a name.
type Answer struct {
	// Ours is false for names outside of the cluster's domain and networks.
	Ours bool
	// Exists is false when there is nothing of any type.
	Exists bool
	// A has addresses of both families, and Extra those of SRV's targets.
	A, SRV, PTR, TXT,
	CNAME, Extra []Record
}

// Lookup finds what is at a name, which ends with a dot.
func Lookup(c Cluster, name string) Answer {
	lower := strings.ToLower(name)
	if ip, ok := reversed(lower); ok {
		return lookupReverse(c, name, ip)
	}
	rest, ours := strings.CutSuffix("."+lower, "."+Domain)
	if !ours {
		return Answer{}
	}
	labels := strings.Split(strings.TrimPrefix(rest, "."), ".")
	slices.Reverse(labels)
	switch labels[0] {
	case "":
		return Answer{Ours: true, Exists: true}
	case "svc":
		return lookupService(c, name, labels[1:])
	case "pod":
		return lookupPod(c, name, labels[1:])
	case "dns-version":
		if len(labels) == 1 {
			return Answer{Ours: true, Exists: true, TXT: []Record{{Name: name, Text: "1.1.0"}}}
		}
	}
	return Answer{Ours: true}
}

// lookupService answers names below svc.cluster.local; the labels are namespace, service, and then a host name, or a
// protocol and a port.
func lookupService(c Cluster, name string, labels []string) Answer {
	if len(labels) == 0 {
		return Answer{Ours: true, Exists: true}
	}
	if len(labels) == 1 {
		return Answer{Ours: true, Exists: c.Namespace(labels[0])}
	}
	svc := c.Service(labels[0], labels[1])
	if svc == nil {
		return Answer{Ours: true}
	}
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		if len(labels) > 2 {
			return Answer{Ours: true}
		}
		return Answer{
			Ours: true, Exists: true,
			CNAME: []Record{{Name: name, Target: strings.TrimSuffix(svc.Spec.ExternalName, ".") + "."}},
		}
	case len(labels) == 2:
		return serviceAddresses(c, svc, name)
	case len(labels) == 3:
		return endpointAddresses(c, svc, name, labels[2])
	case len(labels) == 4 && strings.HasPrefix(labels[2], "_") && strings.HasPrefix(labels[3], "_"):
		return servicePorts(c, svc, name, labels[3][1:], labels[2][1:])
	}
	return Answer{Ours: true}
}

func headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

// serviceName returns the name of a Service's addresses.
func serviceName(svc *corev1.Service) string {
	return svc.Name + "." + svc.Namespace + ".svc." + Domain
}

func serviceAddresses(c Cluster, svc *corev1.Service, name string) Answer {
	answer := Answer{Ours: true, Exists: true}
	if headless(svc) {
		for _, e := range readyEndpoints(c, svc) {
			answer.A = append(answer.A, Record{Name: name, A: e.ip})
		}
	} else {
		for _, ip := range clusterIPs(svc) {
			answer.A = append(answer.A, Record{Name: name, A: ip})
		}
	}
	// A Service's ports can be asked for without naming one.
	ports := allPorts(c, svc, name)
	answer.SRV, answer.Extra = ports.SRV, ports.Extra
	return answer
}

func endpointAddresses(c Cluster, svc *corev1.Service, name, host string) Answer {
	answer := Answer{Ours: true}
	if strings.HasPrefix(host, "_") {
		answer.Exists = slices.Contains([]string{"_tcp", "_udp", "_sctp"}, host)
		return answer
	}
	if !headless(svc) {
		return answer
	}
	for _, e := range readyEndpoints(c, svc) {
		if e.host == host {
			answer.Exists = true
			answer.A = append(answer.A, Record{Name: name, A: e.ip})
		}
	}
	return answer
}

// servicePorts answers _port._protocol.
func servicePorts(c Cluster, svc *corev1.Service, name, port, protocol string) Answer {
	return portsWhere(c, svc, name, func(n, p string) bool { return n == port && strings.EqualFold(p, protocol) })
}

func allPorts(c Cluster, svc *corev1.Service, name string) Answer {
	return portsWhere(c, svc, name, func(string, string) bool { return true })
}

func portsWhere(c Cluster, svc *corev1.Service, name string, want func(port, protocol string) bool) Answer {
	answer := Answer{Ours: true}
	add := func(target string, ip netip.Addr, port int32) {
		answer.Exists = true
		// An endpoint of both families has one name.
		if srv := (Record{Name: name, Target: target, Port: uint16(port)}); !slices.Contains(answer.SRV, srv) {
			answer.SRV = append(answer.SRV, srv)
		}
		if extra := (Record{Name: target, A: ip}); ip.IsValid() && !slices.Contains(answer.Extra, extra) {
			answer.Extra = append(answer.Extra, extra)
		}
	}
	if !headless(svc) {
		for _, ip := range clusterIPs(svc) {
			for _, p := range svc.Spec.Ports {
				if want(p.Name, string(p.Protocol)) {
					add(serviceName(svc), ip, p.Port)
				}
			}
		}
		return answer
	}
	for _, e := range readyEndpoints(c, svc) {
		for _, p := range e.ports {
			if p.Port != nil && want(value(p.Name), string(value(p.Protocol))) {
				add(e.host+"."+serviceName(svc), e.ip, *p.Port)
			}
		}
	}
	return answer
}

type endpoint struct {
	ip    netip.Addr
	host  string
	ports []discoveryv1.EndpointPort
}

// readyEndpoints returns a Service's endpoints that take connections, each once, in order.
func readyEndpoints(c Cluster, svc *corev1.Service) []endpoint {
	var endpoints []endpoint
	for _, slice := range c.Endpoints(svc.Namespace, svc.Name) {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready && !svc.Spec.PublishNotReadyAddresses {
				continue
			}
			for _, address := range e.Addresses {
				ip, err := netip.ParseAddr(address)
				if err != nil || slices.ContainsFunc(endpoints, func(o endpoint) bool { return o.ip == ip }) {
					continue
				}
				host := value(e.Hostname)
				if host == "" {
					host = dashed(ip)
				}
				endpoints = append(endpoints, endpoint{ip, host, slice.Ports})
			}
		}
	}
	slices.SortFunc(endpoints, func(a, b endpoint) int { return a.ip.Compare(b.ip) })
	return endpoints
}

// dashed returns an address as part of a name, which neither begins nor ends with a dash.
func dashed(ip netip.Addr) string {
	text := strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
	if strings.HasPrefix(text, "-") {
		text = "0" + text
	}
	if strings.HasSuffix(text, "-") {
		text += "0"
	}
	return text
}

// undashed returns the address that dashed, or somebody else, made a name of.
func undashed(name string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(strings.ReplaceAll(name, "-", ".")); err == nil {
		return ip, nil
	}
	return netip.ParseAddr(strings.ReplaceAll(name, "-", ":"))
}

// clusterIPs returns the addresses of a Service that has some.
func clusterIPs(svc *corev1.Service) []netip.Addr {
	var ips []netip.Addr
	for _, text := range ipTexts(svc) {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// ipTexts returns a Service's cluster IPs as it has them.
func ipTexts(svc *corev1.Service) []string {
	if len(svc.Spec.ClusterIPs) == 0 && svc.Spec.ClusterIP != "" {
		return []string{svc.Spec.ClusterIP}
	}
	return svc.Spec.ClusterIPs
}

// lookupPod answers 10-0-0-1.NAMESPACE.pod: any address, without asking whether the pod exists, as the
// specification allows for.
func lookupPod(c Cluster, name string, labels []string) Answer {
	switch {
	case len(labels) == 0:
		return Answer{Ours: true, Exists: true}
	case !c.Namespace(labels[0]) || len(labels) > 2:
		return Answer{Ours: true}
	case len(labels) == 1:
		return Answer{Ours: true, Exists: true}
	}
	ip, err := undashed(labels[1])
	if err != nil {
		return Answer{Ours: true}
	}
	return Answer{Ours: true, Exists: true, A: []Record{{Name: name, A: ip}}}
}

// reversed returns the address that a name below in-addr.arpa or ip6.arpa, in lower case, stands for.
func reversed(name string) (netip.Addr, bool) {
	if four, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		ip, err := netip.ParseAddr(backwards(four, "."))
		return ip, err == nil
	}
	six, ok := strings.CutSuffix(name, ".ip6.arpa.")
	bytes, err := hex.DecodeString(backwards(six, ""))
	if !ok || len(six) != 63 || err != nil || len(bytes) != 16 {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(bytes)
}

// backwards returns the labels of a name from the last to the first, joined anew.
func backwards(name, separator string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, separator)
}

// lookupReverse answers for cluster IPs; addresses that we do not know may be somebody else's.
func lookupReverse(c Cluster, name string, ip netip.Addr) Answer {
	if svc := c.ByIP(ip.String()); svc != nil {
		return Answer{Ours: true, Exists: true, PTR: []Record{{Name: name, Target: serviceName(svc)}}}
	}
	return Answer{}
}

func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// String formats a record for error messages and tests.
func (r Record) String() string {
	return fmt.Sprintf("%s %s", r.Name, cmp.Or(r.Text, r.Target+portSuffix(r.Port), r.A.String()))
}

func portSuffix(port uint16) string {
	if port == 0 {
		return ""
	}
	return fmt.Sprintf(":%d", port)
}
