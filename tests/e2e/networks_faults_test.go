//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/tests/frames"
)

// inNetns runs a program in the network namespace of the guest's pod.
func (g *guest) inNetns(t *testing.T, program ...string) string {
	t.Helper()
	found := named(processes(t, string(g.pod(t).UID)), processLauncher)
	if len(found) == 0 {
		t.Fatalf("%s has no launcher", g.name)
	}
	args := append([]string{"--target", strconv.Itoa(found[0]), "--net"}, program...)
	out, err := exec.CommandContext(t.Context(), "nsenter", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v in the network of %s: %v\n%s", program, g.name, err, out)
	}
	return string(out)
}

// lost counts the frames that the links of the guest's pod have dropped for want of room, by link.
func (g *guest) lost(t *testing.T) map[string]uint64 {
	t.Helper()
	found := named(processes(t, string(g.pod(t).UID)), processLauncher)
	if len(found) == 0 {
		t.Fatalf("%s has no launcher", g.name)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", found[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	out := map[string]uint64{}
	err = apply.In(ns, func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			if s := link.Attrs().Statistics; s != nil {
				out[link.Attrs().Name] = s.TxDropped + s.TxErrors + s.RxErrors
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tcp is a row of the guest's counters of TCP: connections that were reset, and segments that were sent again.
func (g *guest) tcp(t *testing.T) (resets, again int) {
	t.Helper()
	out := g.in(t, "awk", "/^Tcp: [0-9]/ {print $9, $13}", "/proc/net/snmp")
	if _, err := fmt.Sscan(out, &resets, &again); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return resets, again
}

// While every virt-handler is killed and comes back, a TCP stream between two guests on a network of Multus goes on:
// nothing of it is lost, the connection is not reset, no link drops a frame; and the guests' rules are the same, and
// drop and count what a guest sends as somebody else all the while. Not parallel: it disturbs every other test.
func TestStreamOutlivesHandlers(t *testing.T) {
	skipInShort(t)
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.network(t, ns, "given", `{"cniVersion":"1.0.0","name":"given","type":"bridge","bridge":"lan2","ipam":{`+
		`"type":"static","addresses":[{"address":"198.51.100.5/24"}]}}`)
	c.network(t, ns, "bare", `{"cniVersion":"1.0.0","name":"bare","type":"bridge","bridge":"lan2","ipam":{}}`)
	from := c.create(t, newVM(ns, "from", v1.RunStrategyAlways,
		withNetwork("given", "given", func(nic *v1.Interface) { nic.MacAddress = frames.MAC.String() }),
		withNetworkData(c.eth0(t)+", eth1: {dhcp4: true}")))
	to := c.create(t, newVM(ns, "to", v1.RunStrategyAlways, withNetwork("bare", "bare"),
		withNetworkData(c.eth0(t)+", eth1: {addresses: [198.51.100.9/24]}")))
	from.row(t, "given", "198.51.100.5")
	to.row(t, "bare", "198.51.100.9")
	c.carryRaw(t, from, to)
	spoofed := frames.Frame{
		Kind: "spoofed", Data: frames.ARP(frames.KindARP, 2, frames.MAC, "198.51.100.1", "198.51.100.9"),
	}
	last := frames.Frame{Kind: "last", Data: frames.Honest(1)}
	from.carryFrames(t, []frames.Frame{spoofed, last})
	to.receives(t, last.Data)

	const rules = "virtkit-guard"
	list := func(g *guest) string {
		return g.inNetns(t, "nft", "--stateless", "list", "table", "bridge", rules)
	}
	before := map[*guest]string{from: list(from), to: list(to)}
	counted := from.counters(t, "given")["arp"]
	losses := map[*guest]map[string]uint64{from: from.lost(t), to: to.lost(t)}
	// An nc whose input has ended closes its side, and the other one ends at that.
	to.in(t, "sh", "-c",
		"(tail -f /dev/null | nc -l -p 9000 >/run/stream 2>/run/stream.err) </dev/null >/dev/null 2>&1 &")
	// A group whose output alone goes elsewhere keeps the shell's old one open, and the agent waits for its end.
	from.in(t, "sh", "-c", `{
		{ i=0; until [ -e /run/stop ]; do i=$((i+1)); echo $i; echo $i >/run/sent; usleep 50000; done; } |
			nc 198.51.100.9 9000
		} >/run/nc 2>&1 </dev/null &
		{ until [ -e /run/stop ]; do `+rawProgram+` send eth1 `+rawFrames+` spoofed; usleep 200000; done
		} >/run/spoofed 2>&1 </dev/null &`)
	flows := func(what string, beyond int) int {
		t.Helper()
		var n int
		eventually(t, time.Minute, what+" the stream flows", func() string {
			text := to.in(t, "tail", "-n", "1", "/run/stream")
			n, _ = strconv.Atoi(text)
			if n > beyond {
				return ""
			}
			return fmt.Sprintf("line %q, want one after %d", text, beyond)
		})
		return n
	}
	at := flows("before virt-handler ends,", 0)
	resets, again := from.tcp(t)
	restarts := map[string]int32{}
	for _, pod := range c.componentPods(t, names.VirtHandler) {
		for _, status := range pod.Status.ContainerStatuses {
			restarts[pod.Name] = status.RestartCount
		}
		kill(t, string(pod.UID), processServer)
	}
	eventually(t, 2*time.Minute, "every virt-handler is back", func() string {
		for _, pod := range c.componentPods(t, names.VirtHandler) {
			for _, status := range pod.Status.ContainerStatuses {
				if !status.Ready || status.RestartCount <= restarts[pod.Name] {
					return pod.Name + " is not"
				}
			}
		}
		return ""
	})
	flows("after virt-handler came back,", at)
	from.in(t, "touch", "/run/stop")
	eventually(t, time.Minute, "the whole stream has arrived", func() string {
		sent := from.in(t, "cat", "/run/sent")
		got := to.in(t, "sh", "-c", `awk '$1 != NR {print "line", NR, "is", $1; exit} END {print NR}' /run/stream | tail -n 1`)
		if got != sent {
			return fmt.Sprintf("%s lines of %s", got, sent)
		}
		return ""
	})
	if out := to.in(t, "awk", `$1 != NR {print "line", NR, "is", $1}`, "/run/stream"); out != "" {
		t.Errorf("the stream is damaged: %s", out)
	}
	nowResets, nowAgain := from.tcp(t)
	t.Logf("%d segments were sent again", nowAgain-again)
	if nowResets != resets {
		t.Errorf("%d connections were reset", nowResets-resets)
	}
	for g, was := range losses {
		now := g.lost(t)
		for link, n := range was {
			if now[link] != n {
				t.Errorf("%s: %s has lost %d frames", g.name, link, now[link]-n)
			}
		}
		if is := list(g); is != before[g] {
			t.Errorf("the rules of %s were\n%s\nand are\n%s", g.name, before[g], is)
		}
	}
	sent := from.in(t, "grep", "-c", "^1$", "/run/spoofed")
	if n := from.counters(t, "given")["arp"] - counted; n == 0 || strconv.FormatUint(n, 10) != sent {
		t.Errorf("%s spoofed frames were sent, and %d are counted", sent, n)
	}
	from.sends(t, "last", 1)
	eventually(t, time.Minute, "the last frame came", func() string {
		if !came(to.received(t), last.Data) {
			return "not yet"
		}
		return ""
	})
	if came(to.received(t), spoofed.Data) {
		t.Error("a spoofed frame came")
	}
}

// A VM whose network has no address left does not start, and says why; it starts by itself when another VM has given
// its address back.
func TestUsedUpPool(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	// Each node counts by itself.
	c.network(t, ns, "one", `{"cniVersion":"1.0.0","name":"one","type":"bridge","bridge":"lan2","ipam":{`+
		`"type":"host-local","dataDir":"/run/cni-`+ns+`","ranges":[[{"subnet":"198.51.101.0/24",`+
		`"rangeStart":"198.51.101.10","rangeEnd":"198.51.101.10"}]]}}`)
	node := c.nodes(t)[0]
	there := func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	config := withNetworkData(c.eth0(t) + ", eth1: {dhcp4: true}")
	first := c.create(t, newVM(ns, "first", v1.RunStrategyAlways, there, withNetwork("one", "one"), config))
	first.row(t, "one", "198.51.101.10")
	second := c.create(t, newVM(ns, "second", v1.RunStrategyAlways, there, withNetwork("one", "one"), config))
	eventually(t, bootTime, "virtctl why says that no address is left", func() string {
		out, errs, _ := c.Virtctl(t.Context(), nil, "-n", ns, "why", second.name)
		if strings.Contains(out, "a network of the VM has no address left") && strings.Contains(out, "198.51.101.10") {
			return ""
		}
		return instead(out + errs)
	})
	failure := func() string {
		for _, condition := range second.vm(t).Status.Conditions {
			if condition.Type == v1.VirtualMachineFailure && condition.Status == corev1.ConditionTrue {
				return condition.Reason + ": " + condition.Message
			}
		}
		return ""
	}
	eventually(t, time.Minute, "its condition Failure says that no address is left", func() string {
		said := failure()
		if strings.HasPrefix(said, "FailedCreatePodSandBox: ") && strings.Contains(said, "no IP addresses available") {
			return ""
		}
		return instead(said)
	})
	if phase := second.vmi(t).Status.Phase; phase == v1.Running || phase == v1.Failed {
		t.Errorf("without an address the instance is %s", phase)
	}
	c.virtctl(t, nil, "-n", ns, "stop", first.name, "--force", "--grace-period=0", "--wait")
	second.row(t, "one", "198.51.101.10")
	if said := failure(); said != "" {
		t.Errorf("the guest runs, and its VM says %s", said)
	}
}

// A guest that asks for addresses of both families has IPv4 alone where the CNI plugin gives nothing else: it waits for
// nothing, has no router of IPv6, and is reached.
func TestNetworkWithoutIPv6(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.network(t, ns, "four", `{"cniVersion":"1.0.0","name":"four","type":"bridge","bridge":"lan2","ipam":{`+
		`"type":"static","addresses":[{"address":"198.51.102.7/24"}]}}`)
	c.network(t, ns, "bare", `{"cniVersion":"1.0.0","name":"bare","type":"bridge","bridge":"lan2","ipam":{}}`)
	dual := c.create(t, newVM(ns, "dual", v1.RunStrategyAlways, withNetwork("four", "four"),
		withNetworkData("eth0: {dhcp4: true, dhcp6: true}, eth1: {dhcp4: true, dhcp6: true}")))
	asks := c.create(t, newVM(ns, "asks", v1.RunStrategyAlways, withNetwork("bare", "bare"),
		withNetworkData(c.eth0(t)+", eth1: {addresses: [198.51.102.9/24]}")))
	row := dual.row(t, "four", "198.51.102.7")
	for _, ip := range row.IPs {
		if strings.Contains(ip, ":") && !strings.HasPrefix(ip, "fe80:") {
			t.Errorf("its status has %v", row.IPs)
		}
	}
	asks.row(t, "bare", "198.51.102.9")
	if out := asks.in(t, "ping", "-c", "3", "-W", "5", "198.51.102.7"); strings.Contains(out, "100% packet loss") {
		t.Error(out)
	}
	without := func(link string) {
		t.Helper()
		out := dual.in(t, "sh", "-c", "ip -6 addr show dev "+link+" scope global; ip -6 route show default dev "+link)
		if out != "" {
			t.Errorf("%s has of IPv6: %s", link, out)
		}
	}
	without("eth1")
	if _, v6 := c.families(t); v6 {
		return
	}
	without("eth0")
	vmi := dual.vmi(t)
	if row := vmi.Status.Interfaces[0]; len(row.IPs) != 1 || row.IP != dual.pod(t).Status.PodIP {
		t.Errorf("on a pod network of IPv4 alone its status is %+v", row)
	}
	if _, errs, err := c.Virtctl(t.Context(), nil, "-n", ns, "why", dual.name); err != nil {
		t.Errorf("something blocks it: %v: %s", err, errs)
	}
}
