//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/pkg/vm/network/reach"
	"github.com/virtkit/virtkit/tests/instance"
)

// callerPort is where a caller answers with the address that it is called from.
const callerPort = "8080"

// caller is a pod, from which the test makes calls, and in which it answers them.
type caller struct {
	ns  *os.File // its network namespace
	ips []string
}

// caller makes a pod on a node. It does nothing itself.
func (c *cluster) caller(t *testing.T, ns, node string) *caller {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "caller", Namespace: ns},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr(int64(0)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: ptr(int64(107)), RunAsNonRoot: ptr(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "caller", Image: instance.Launcher(), Command: []string{"/usr/bin/busybox", "sleep", "3600"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if err := c.Client.Create(t.Context(), pod); err != nil {
		t.Fatalf("create the caller: %v", err)
	}
	eventually(t, bootTime, "the caller runs", func() string {
		var err error
		if pod, err = c.Kube.CoreV1().Pods(ns).Get(t.Context(), pod.Name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if !podReady(pod) {
			return string(pod.Status.Phase)
		}
		return ""
	})
	found := processes(t, string(pod.UID))
	if len(found) == 0 {
		t.Fatal("the caller has no process")
	}
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", found[0].PID))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Close() })
	a := &caller{ns: netns, ips: podIPs(*pod)}
	a.answer(t)
	return a
}

// answer serves callerPort of the pod until the test ends.
func (a *caller) answer(t *testing.T) {
	t.Helper()
	var l net.Listener
	err := apply.In(a.ns, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort("", callerPort))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			fmt.Fprintln(w, from.Addr().Unmap())
		}
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
}

// get fetches a page from an address, as the pod does.
func (a *caller) get(ctx context.Context, ip, path string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
			address, err := netip.ParseAddrPort(to)
			if err != nil {
				return nil, err
			}
			return reach.In(ctx, a.ns, reach.TCP, address)
		},
	}}
	return get(ctx, &client, "http://"+net.JoinHostPort(ip, "80")+path)
}

func podIPs(pod corev1.Pod) (ips []string) {
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return ips
}

// addresses returns those of the pod that the guest is in.
func (g *guest) addresses(t *testing.T) []string {
	t.Helper()
	vmi, pods := g.vmi(t), g.pods(t)
	i := slices.IndexFunc(pods, func(pod corev1.Pod) bool {
		return pod.Spec.NodeName == vmi.Status.NodeName && vmi.Status.ActivePods[pod.UID] == pod.Spec.NodeName
	})
	if i < 0 {
		t.Fatalf("%s has no pod on %s: %v", g.name, vmi.Status.NodeName, vmi.Status.ActivePods)
	}
	ips := podIPs(pods[i])
	want := 1
	if v4, v6 := g.families(t); v4 && v6 {
		want = 2
	}
	if len(ips) != want {
		t.Fatalf("the pod of %s has the addresses %v", g.name, ips)
	}
	return ips
}

func internalIPs(node *corev1.Node) (ips []string) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			ips = append(ips, a.Address)
		}
	}
	return ips
}

// families returns which families the cluster's nodes, and so its pods, have addresses of.
func (c *cluster) families(t *testing.T) (v4, v6 bool) {
	t.Helper()
	node, err := c.Kube.CoreV1().Nodes().Get(t.Context(), c.nodes(t)[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range internalIPs(node) {
		if strings.Contains(ip, ":") {
			v6 = true
		} else {
			v4 = true
		}
	}
	return v4, v6
}

// needsIPv4 skips a test on a cluster of IPv6 alone.
func (c *cluster) needsIPv4(t *testing.T, why string) {
	t.Helper()
	if v4, _ := c.families(t); !v4 {
		t.Skip("the cluster has IPv6 alone: " + why)
	}
}

// eth0 is the network data of a guest's interface on the pod network: it asks for an address of each family there is.
func (c *cluster) eth0(t *testing.T) string {
	t.Helper()
	v4, v6 := c.families(t)
	return fmt.Sprintf("eth0: {dhcp4: %v, dhcp6: %v}", v4, v6)
}

// talks checks that a guest is at its pod's addresses, that it is reached at each of them and at others, and that it
// reaches the caller by each of the caller's; masquerade hides it behind its pod then, and bridge is the pod.
func (g *guest) talks(t *testing.T, when string, a *caller, others ...string) {
	t.Helper()
	ips := g.addresses(t)
	eventually(t, bootTime, g.name+", "+when+": status has the pod's addresses", func() string {
		row := g.vmi(t).Status.Interfaces[0]
		if row.IP == ips[0] && slices.Equal(row.IPs, ips) {
			return ""
		}
		return fmt.Sprintf("%+v, not %v", row, ips)
	})
	for _, ip := range slices.Concat(ips, others) {
		eventually(t, 20*time.Second, g.name+", "+when+": it is reached at "+ip, func() string {
			body, err := a.get(t.Context(), ip, "/cgi-bin/echo")
			if err == nil && strings.HasPrefix(body, "host="+g.name+" ") {
				return ""
			}
			return fmt.Sprintf("%q, %v", body, err)
		})
	}
	for i, ip := range a.ips {
		out := g.in(t, "wget", "-q", "-O", "-", "-T", "5", "http://"+net.JoinHostPort(ip, callerPort)+"/")
		if out != ips[i] {
			t.Errorf("%s, %s: a call of %s comes from %s, want %s", g.name, when, ip, out, ips[i])
		}
	}
}

// state waits, in the guest, until its DHCP clients and its kernel have made all of what it prints: its addresses, its
// default route and its name servers of IPv6. $1 is "inet " where it has IPv4, too.
const state = `i=0; while [ $i -lt 30 ]; do
	a=$(ip -o addr show dev eth0 scope global); r=$(ip -6 route show default); n=$(grep 'nameserver .*:' /etc/resolv.conf)
	case $a in *"$1"*inet6\ *) [ -n "$r" ] && [ -n "$n" ] && break ;; esac
	i=$((i+1)); sleep 1
done
echo "$a" | awk '{print $4}'; echo "$r" | awk '{print $1, $2, $3, $4, $5}'; echo "$n"`

// configured waits until the guest has an address and a default route, and returns its state.
func (g *guest) configured(t *testing.T, address string) string {
	t.Helper()
	out, both := "", ""
	if v4, _ := g.families(t); v4 {
		both = "inet "
	}
	eventually(t, bootTime, g.name+" has "+address+" and a default route", func() string {
		out = g.in(t, "sh", "-c", state, "sh", both)
		if strings.Contains(out, address+"/") && strings.Contains(out, "default via fe80::") {
			return ""
		}
		return instead(out)
	})
	return out
}

// Guests of a cluster with both families have an address of each, by DHCP, DHCPv6 and router advertisements: they are
// reached by both, also by a Service, reach others by both, and keep their addresses when they move. On a cluster of
// IPv6 alone they do the same by that.
func TestBothFamilies(t *testing.T) {
	t.Parallel()
	c := theCluster
	nodes := c.nodes(t)
	v4, v6 := c.families(t)
	if !v6 {
		t.Skip("nodes have IPv4 alone: the cluster needs virt-local up --ip-family dual, or ipv6")
	}
	ns := c.namespace(t, "restricted")
	config := withNetworkData(c.eth0(t))
	g := c.create(t, newVM(ns, "both", v1.RunStrategyAlways, config))
	bridged := c.create(t, newVM(ns, "bridged", v1.RunStrategyAlways, config, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{
			Bridge: &v1.InterfaceBridge{},
		}
	}))
	home := g.waitPhase(t, bootTime, v1.Scheduled, v1.Running).Status.NodeName
	away := other(nodes, home)
	a := c.caller(t, ns, away)

	policy := corev1.IPFamilyPolicyPreferDualStack
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "both"},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &policy, Selector: map[string]string{"app": g.name},
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	if err := c.Client.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if len(service.Spec.ClusterIPs) != len(a.ips) {
		t.Errorf("the Service has the addresses %v", service.Spec.ClusterIPs)
	}
	before := g.configured(t, "fd10:0:2::2")
	if strings.Contains(before, "10.0.2.2/24") != v4 || !strings.Contains(before, "nameserver fd") {
		t.Errorf("the guest has no IPv4 address, or no name server of IPv6: %s", before)
	}
	g.talks(t, "at first", a, service.Spec.ClusterIPs...)
	own := bridged.addresses(t)
	bridged.configured(t, own[len(own)-1]) // the cluster's first family is IPv4 where it has both
	bridged.talks(t, "at first", a)

	boot := g.in(t, "cat", "/proc/sys/kernel/random/boot_id")
	move := g.migrate(t, "move")
	g.waitMigration(t, move, v1.MigrationSucceeded)
	g.onlyOn(t, away)
	g.talks(t, "after it moved", a, service.Spec.ClusterIPs...)
	if after := g.configured(t, "fd10:0:2::2"); after != before {
		t.Errorf("before it moved the guest had\n%s\nafter\n%s", before, after)
	}
	if now := g.in(t, "cat", "/proc/sys/kernel/random/boot_id"); now != boot {
		t.Errorf("the guest has booted anew")
	}
}
