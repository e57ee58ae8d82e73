//go:build e2e

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// long runs what CI has no time for.
var long = flag.Bool("long", false, "run the tests that take clusters of their own")

// TestIPv6 has a cluster of IPv6 alone: it works, and down leaves nothing of it.
func TestIPv6(t *testing.T) {
	if !*long {
		t.Skip("a cluster of its own; with -long")
	}
	m := newMachine(t)
	alone, before := isAlone(), traces(t)
	m.must("up", "--ip-family", "ipv6", "--kubeconfig", m.kubeconfig, "--node-monitor-grace-period", "8s",
		"--image", busybox(t))
	m.connect()
	if _, err := m.run("up", "--ip-family", "dual"); err == nil ||
		!strings.Contains(err.Error(), "addresses cannot change") {
		t.Errorf("the family of a cluster is changed: %v", err)
	}
	up := m.status()
	if !up.Ready {
		t.Fatalf("status: %+v", up)
	}
	m.pods("16Mi")
	m.families(up, instance.IPv6)
	m.cutNode()
	if t.Failed() {
		return
	}
	m.must("down")
	m.leftNothing(up, before, alone)
}

// families checks each address family of the cluster, whose pods run: pods reach each other, a Service and the names of
// both, and what is beyond the machine.
func (m *machine) families(up cluster.Status, want string) {
	in, err := instance.Load(up.StateDir)
	if err != nil {
		m.Fatal(err)
	}
	if in.IPFamily != want {
		m.Fatalf("the cluster has --ip-family %s, want %s", in.IPFamily, want)
	}
	pods, everywhere := map[string][]string{}, []string{}
	for _, node := range in.NodeList() {
		p, err := m.client.CoreV1().Pods("default").Get(context.Background(), "pod-"+node.NodeName(),
			metav1.GetOptions{})
		if err != nil {
			m.Fatal(err)
		}
		for _, ip := range p.Status.PodIPs {
			pods[p.Name] = append(pods[p.Name], ip.IP)
		}
		everywhere = append(everywhere, pods[p.Name]...)
		if len(p.Status.PodIPs) != len(in.Families()) || len(p.Status.HostIPs) != len(in.Families()) {
			m.Errorf("%s has the addresses %v, its node %v; the cluster is of %s", p.Name, p.Status.PodIPs,
				p.Status.HostIPs, in.IPFamily)
		}
	}
	addresses := map[string][]string{"every": everywhere}
	for name, clusterIP := range map[string]string{"families": "", "every": corev1.ClusterIPNone} {
		svc := m.service(name, clusterIP)
		if clusterIP == "" {
			addresses[name] = svc.Spec.ClusterIPs
		}
	}
	for port, ips := range map[string][]string{"8080": everywhere, "80": addresses["families"]} {
		for _, ip := range ips {
			for pod := range pods {
				m.await(pod+" reaches "+ip, time.Minute, func(context.Context) bool {
					out, err := m.get(pod, ip, port)
					return err == nil && strings.HasPrefix(out, "node")
				})
			}
		}
	}
	m.names(in, addresses)
	hosts, remove := elsewhere(m.T, in)
	defer remove()
	for _, ip := range hosts {
		m.await("pod-node1 reaches "+ip.String()+" as the machine", time.Minute, func(context.Context) bool {
			out, err := m.get("pod-node1", ip.String(), "80")
			return err == nil && out == ip.Prev().String()
		})
	}
}

// get calls an address from a pod, and returns the last line of the answer, empty when nobody answers.
func (m *machine) get(pod, ip, port string) (string, error) {
	m.Helper()
	out, err := m.exec(pod, fmt.Sprintf("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 %s %s 2>/dev/null | tail -1",
		ip, port))
	return strings.TrimSpace(out), err
}

// service makes a Service of all pods, of as many families as the cluster has.
func (m *machine) service(name, clusterIP string) *corev1.Service {
	m.Helper()
	policy := corev1.IPFamilyPolicyPreferDualStack
	svc, err := m.client.CoreV1().Services("default").Create(context.Background(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "pod"}, ClusterIP: clusterIP, IPFamilyPolicy: &policy,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		m.Fatal(err)
	}
	return svc
}

// names checks that names in the cluster have all the given addresses, whichever family the name server is asked by.
func (m *machine) names(in *instance.Instance, addresses map[string][]string) {
	m.Helper()
	for name, want := range addresses {
		slices.Sort(want)
		for _, server := range instance.Texts(in.DNSIPs()) {
			var got []string
			m.await(name+" has its addresses at "+server, time.Minute, func(context.Context) bool {
				out, err := m.exec("pod-node1", "nslookup "+name+".default.svc.cluster.local "+server+
					" | awk '/^Address: /{print $NF}'")
				if err != nil {
					return false
				}
				got = strings.Fields(out)
				slices.Sort(got)
				return len(got) >= len(want)
			})
			if diff := cmp.Diff(want, got); diff != "" {
				m.Errorf("%s at %s (-want +got):\n%s", name, server, diff)
			}
		}
	}
}

// elsewhere makes a host beyond this machine, with an address of each family of the instance, that knows no way back to
// the cluster. It answers with the address that it is called from. The machine's end has the address before each.
func elsewhere(t *testing.T, in *instance.Instance) (addresses []netip.Addr, remove func()) {
	t.Helper()
	var listeners []net.Listener
	for _, f := range in.Families() { // RFC 5737 and 3849, of the slot
		if f == instance.V4 {
			addresses = append(addresses, netip.AddrFrom4([4]byte{198, 51, 100, byte(4*in.Slot + 2)}))
		} else {
			addresses = append(addresses, netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 5: byte(in.Slot), 15: 2}))
		}
	}
	link := fmt.Sprintf("elsewhere%d", in.Slot)
	made, connected, failed := make(chan netns.NsHandle), make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in its namespace
		failed <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("make a network namespace: %w", err)
			}
			ns, err := netns.Get()
			if err != nil {
				return err
			}
			made <- ns
			<-connected
			for _, ip := range addresses {
				l, err := net.Listen("tcp", netip.AddrPortFrom(ip, 80).String())
				if err != nil {
					return err
				}
				listeners = append(listeners, l)
				go tellCallers(l)
			}
			return nil
		}()
	}()
	var ns netns.NsHandle
	select {
	case ns = <-made:
		defer ns.Close()
	case err := <-failed:
		t.Fatal(err)
	}
	err := connect(link, ns, addresses)
	close(connected)
	err = errors.Join(err, <-failed)
	remove = func() {
		for _, l := range listeners {
			l.Close()
		}
		if err := netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link}}); err != nil {
			t.Errorf("remove link %s: %v", link, err)
		}
	}
	if err != nil {
		remove()
		t.Fatal(err)
	}
	return addresses, remove
}

// connect lays a cable from this machine to a network namespace; both ends have addresses.
func connect(name string, ns netns.NsHandle, addresses []netip.Addr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns)),
	}); err != nil {
		return fmt.Errorf("add link %s: %w", name, err)
	}
	here, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer here.Close()
	there, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer there.Close()
	for _, end := range []struct {
		*netlink.Handle
		name string
		ip   func(netip.Addr) netip.Addr
	}{{here, name, netip.Addr.Prev}, {there, "eth0", func(ip netip.Addr) netip.Addr { return ip }}} {
		link, err := end.LinkByName(end.name)
		if err != nil {
			return fmt.Errorf("find %s: %w", end.name, err)
		}
		if err := end.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", end.name, err)
		}
		for _, ip := range addresses {
			bits := map[bool]int{true: 30, false: 64}[ip.Is4()]
			address := &netlink.Addr{
				IPNet: &net.IPNet{IP: end.ip(ip).AsSlice(), Mask: net.CIDRMask(bits, ip.BitLen())},
			}
			if ip.Is6() {
				address.Flags = unix.IFA_F_NODAD
			}
			if err := end.AddrAdd(link, address); err != nil {
				return fmt.Errorf("set address of %s: %w", end.name, err)
			}
		}
	}
	return nil
}

// tellCallers answers each caller with its address, until the listener is closed.
func tellCallers(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			if caller, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
				fmt.Fprintln(c, caller.Addr())
			}
		}
		c.Close()
	}
}
