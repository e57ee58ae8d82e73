//go:build slow

package slow

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/ndp"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action/firewall"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/tests/instance"
)

// The guest's MAC addresses in testdata/ipv6.yaml, on the pod network and on the network red.
const (
	podMAC = "02:00:00:00:61:01"
	redMAC = "02:00:00:00:61:02"
)

// redLink is the pod's link to the network red.
const redLink = "net1"

var (
	redPrefix = netip.MustParsePrefix("fd61:0:0:1::/64")
	redRouter = netip.MustParseAddr("fd61:0:0:1::1")
)

// router is a pod that is the IPv6 router of the network red: the test speaks in its network namespace.
type router struct{ ns *os.File }

// newRouter makes the network red, which has no address management, and its router.
func newRouter(t *testing.T, ns string) *router {
	t.Helper()
	red := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"namespace": ns, "name": "red"},
		"spec": map[string]any{
			"config": `{"cniVersion":"1.0.0","name":"red","type":"bridge","bridge":"lan1","ipam":{}}`,
		},
	}}
	if err := theCluster.Client.Create(t.Context(), red); err != nil {
		t.Fatalf("create network red (the cluster needs virt-local up --multus): %v", err)
	}
	pod, err := theCluster.Kube.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "router", Annotations: map[string]string{
			network.AnnotationNetworks: fmt.Sprintf(`[{"name":"red","namespace":%q,"interface":%q}]`, ns, redLink),
		}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: new(int64(107)), RunAsNonRoot: new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "router", Image: instance.Launcher(), Command: []string{"/usr/bin/busybox", "sleep", "36000"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &router{}
	eventually(t, 5*time.Minute, "the router's pod runs", func() string {
		processes, err := instance.Processes(string(pod.UID))
		if err != nil {
			return err.Error()
		}
		i := slices.IndexFunc(processes, func(p instance.Process) bool { return p.Command == "busybox" })
		if i < 0 {
			return "not yet"
		}
		if r.ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", processes[i].PID)); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Cleanup(func() { r.ns.Close() })
	err = apply.In(r.ns, func() error {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+redLink+"/disable_ipv6", []byte("0"), 0o644); err != nil {
			return err
		}
		link, err := netlink.LinkByName(redLink)
		if err != nil {
			return err
		}
		return netlink.AddrReplace(link, &netlink.Addr{
			IPNet: &net.IPNet{IP: redRouter.AsSlice(), Mask: net.CIDRMask(redPrefix.Bits(), 128)},
			Flags: unix.IFA_F_NODAD,
		})
	})
	if err != nil {
		t.Fatalf("give the router its address: %v", err)
	}
	return r
}

// advertise sends a router advertisement to all, with a prefix of which hosts make themselves addresses.
func (r *router) advertise() error {
	return apply.In(r.ns, func() error {
		link, err := net.InterfaceByName(redLink)
		if err != nil {
			return err
		}
		conn, _, err := ndp.Listen(link, ndp.LinkLocal)
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.WriteTo(&ndp.RouterAdvertisement{
			CurrentHopLimit: 64, RouterLifetime: 30 * time.Minute,
			Options: []ndp.Option{
				&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: link.HardwareAddr},
				&ndp.PrefixInformation{
					PrefixLength: uint8(redPrefix.Bits()), OnLink: true, AutonomousAddressConfiguration: true,
					ValidLifetime: time.Hour, PreferredLifetime: time.Hour, Prefix: redPrefix.Addr(),
				},
			},
		}, nil, netip.MustParseAddr("ff02::1"))
	})
}

// ping sends an echo request to an address, and waits for the answer.
func (r *router) ping(to netip.Addr) error {
	return apply.In(r.ns, func() error {
		conn, err := icmp.ListenPacket("ip6:ipv6-icmp", redRouter.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		const id = 61
		request := icmp.Message{
			Type: ipv6.ICMPTypeEchoRequest, Body: &icmp.Echo{ID: id, Seq: 1, Data: []byte("north by east")},
		}
		data, err := request.Marshal(nil) // the kernel adds the checksum
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(data, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		for answer := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(answer)
			if err != nil {
				return err
			}
			message, err := icmp.ParseMessage(unix.IPPROTO_ICMPV6, answer[:n])
			if err != nil || message.Type != ipv6.ICMPTypeEchoReply {
				continue
			}
			if echo, ok := message.Body.(*icmp.Echo); !ok || echo.ID != id {
				continue
			}
			if from.String() != to.String() {
				return errors.New("the answer is from " + from.String())
			}
			return nil
		}
	})
}

// configured is what systemd-networkd says of a link: where each part of its configuration comes from.
type configured struct {
	Addresses, DNS []struct {
		Family       int
		Address      []int
		ConfigSource string
	}
}

// networkd asks the guest about the link with a MAC address, and about its IPv6 routes.
func (g *guest) networkd(t *testing.T, key, mac string) (link string, says configured, routes string, err error) {
	out, err := g.trySSH(t.Context(), "debian", key, "",
		"l=$(basename $(dirname $(grep -il "+mac+" /sys/class/net/*/address))); echo $l; "+
			"networkctl --json=short --no-pager status $l; echo; ip -6 route show")
	if err != nil {
		return "", says, "", err
	}
	link, rest, _ := strings.Cut(out, "\n")
	object, routes, _ := strings.Cut(rest, "\n")
	if err := json.Unmarshal([]byte(object), &says); err != nil {
		return link, says, routes, fmt.Errorf("networkctl says %q: %w", object, err)
	}
	return link, says, routes, nil
}

// from are the IPv6 addresses of a list that come from one of the sources.
func (c configured) from(dns bool, sources ...string) (out []netip.Addr) {
	list := c.Addresses
	if dns {
		list = c.DNS
	}
	for _, entry := range list {
		var octets []byte
		for _, b := range entry.Address {
			octets = append(octets, byte(b))
		}
		if a, ok := netip.AddrFromSlice(octets); ok && a.Is6() && slices.Contains(sources, entry.ConfigSource) {
			out = append(out, a)
		}
	}
	return out
}

// A Debian guest gets its IPv6 address of the pod network by DHCPv6, and its default route and name servers by that and
// router advertisements. On a network without address management it makes itself an address of the prefix that a router
// there advertises, and answers at it: what a guest may say of itself lets that through.
func TestDebianIPv6(t *testing.T) {
	nodes, err := theCluster.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("%d nodes: %v", len(nodes.Items), err)
	}
	families := map[bool]bool{}
	for _, a := range nodes.Items[0].Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			families[ip.Is6()] = true
		}
	}
	if len(families) < 2 {
		t.Skip("nodes have one family of addresses: the cluster needs virt-local up --ip-family dual")
	}
	dir := t.TempDir()
	key, public := newKey(t, dir, "boot")
	ns := namespace(t, map[string]map[string]string{"boot-keys": {"key": public}})
	r := newRouter(t, ns)
	g := create(t, ns, "ipv6.yaml", dir)
	g.booted(t, key)

	eventually(t, 2*time.Minute, "the guest has IPv6 on the pod network", func() string {
		link, says, routes, err := g.networkd(t, key, podMAC)
		if err != nil {
			return err.Error()
		}
		byRouter := regexp.MustCompile(`(?m)^default .*via fe80::\S+ dev ` + regexp.QuoteMeta(link) + ` proto ra`)
		switch {
		case !slices.Contains(says.from(false, "DHCPv6"), netip.MustParseAddr("fd10:0:2::2")):
			return fmt.Sprintf("no fd10:0:2::2 by DHCPv6: %+v", says.Addresses)
		case !byRouter.MatchString(routes):
			return "no default route by router advertisement: " + routes
		case len(says.from(true, "DHCPv6", "NDisc")) == 0:
			return fmt.Sprintf("no name server of IPv6: %+v", says.DNS)
		}
		return ""
	})

	var own netip.Addr
	eventually(t, 3*time.Minute, "the guest has made itself an address of red's prefix", func() string {
		if err := r.advertise(); err != nil {
			return err.Error()
		}
		_, says, routes, err := g.networkd(t, key, redMAC)
		if err != nil {
			return err.Error()
		}
		for _, own = range says.from(false, "NDisc") {
			if redPrefix.Contains(own) {
				return ""
			}
		}
		return fmt.Sprintf("%+v, routes %s", says.Addresses, routes)
	})
	eventually(t, time.Minute, "the guest answers at "+own.String(), func() string {
		if err := r.ping(own); err != nil {
			return err.Error()
		}
		return ""
	})
	out, stderr, err := theCluster.Virtctl(t.Context(), nil, "-n", ns, "firewall", "show", g.name, "-o", "json")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	var report firewall.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	guards := 0
	for _, row := range report.Interfaces {
		for _, d := range row.Dropped {
			switch kind := network.Spoof(d.Kind); kind {
			case network.SpoofIP, network.SpoofND, network.SpoofHidden:
				guards++
				if d.Frames > 0 {
					t.Errorf("%d frames of kind %s were dropped on %s", d.Frames, kind, row.Name)
				}
			}
		}
	}
	if guards != 3 {
		t.Errorf("interface red alone is to have a guard: %s", out)
	}
}
