//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/client/action/firewall"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// networkPolicy makes a MultiNetworkPolicy for network red, or gives one another spec.
func (c *cluster) networkPolicy(t *testing.T, ns, name string, spec map[string]any) {
	t.Helper()
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": multipolicy.Version.String(), "kind": multipolicy.Kind,
		"metadata": map[string]any{
			"namespace": ns, "name": name, "annotations": map[string]any{multipolicy.AnnotationFor: "red"},
		},
		"spec": spec,
	}}
	before := policy.DeepCopy()
	err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), before)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err == nil {
		policy.SetResourceVersion(before.GetResourceVersion())
		err = c.Client.Update(t.Context(), policy)
	} else {
		err = c.Client.Create(t.Context(), policy)
	}
	if err != nil {
		t.Fatalf("write MultiNetworkPolicy %s: %v", name, err)
	}
}

// filter returns what holds on an interface, as `virtctl firewall show` has it.
func (g *guest) filter(t *testing.T, nic string) nwfilter.Interface {
	t.Helper()
	var report firewall.Report
	out := g.virtctl(t, nil, "-n", g.ns, "firewall", "show", g.name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	for _, row := range report.Interfaces {
		if row.Name == nic {
			return row
		}
	}
	t.Fatalf("no interface %s in %s", nic, out)
	return nwfilter.Interface{}
}

// labelsOf selects the pod of a guest.
func labelsOf(g *guest) map[string]any {
	return map[string]any{"matchLabels": map[string]any{v1.DeprecatedVirtualMachineNameLabel: g.name}}
}

// A guest on a network of Multus is reached as MultiNetworkPolicies say: not at all, or at a port by another guest that
// a selector means, which has its address from nobody. What holds survives virt-handler, goes along when the guest
// moves, and may change meanwhile; and what is closed is never open for a moment. Not parallel: it restarts a
// virt-handler.
func TestMultiNetworkPolicies(t *testing.T) {
	skipInShort(t)
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.network(t, ns, "red", `{"cniVersion":"1.0.0","name":"red","type":"bridge","bridge":"lan1","ipam":{}}`)
	_, six := c.families(t)
	static := func(n string) func(*v1.VirtualMachine) {
		addresses := "198.18.7." + n + "/24"
		if six {
			addresses += ", '2001:db8:7::" + n + "/64'"
		}
		return withNetworkData("eth0: {dhcp4: true}, eth1: {addresses: [" + addresses + "]}")
	}
	kept := c.create(t, newVM(ns, "kept", v1.RunStrategyAlways, withNetwork("red", "red"), static("1")))
	peer := c.create(t, newVM(ns, "peer", v1.RunStrategyAlways, withNetwork("red", "red"), static("2")))
	kept.row(t, "red", "198.18.7.1")
	peer.row(t, "red", "198.18.7.2")

	kept.in(t, "sh", "-c", "echo here >/www/here") // a page that takes no program, of which a busy node makes seconds
	const fetch = "wget -q -O /dev/null -T 5 http://198.18.7.1/here && echo got || echo lost"
	const fetch6 = "wget -q -O /dev/null -T 5 http://[2001:db8:7::1]/here && echo got || echo lost"
	const echo = "ping -c 1 -W 2 198.18.7.1 >/dev/null && echo got || echo lost"
	becomes := func(what, program, want string) {
		t.Helper()
		eventually(t, time.Minute, what, func() string {
			if got := peer.in(t, "sh", "-c", program); got != want {
				return instead(got)
			}
			return ""
		})
	}
	becomes6 := func(what, want string) {
		t.Helper()
		if six {
			becomes(what+", by IPv6", fetch6, want)
		}
	}
	becomes("without policies the guest answers", fetch, "got")
	becomes6("without policies the guest answers", "got")

	// Closed. The guest itself may still ask, and is answered.
	selected := map[string]any{"podSelector": labelsOf(kept)}
	c.networkPolicy(t, ns, "kept", selected)
	becomes("the guest is closed", fetch, "lost")
	becomes6("the guest is closed", "lost")
	becomes("the guest is closed to echoes", echo, "lost")
	const asks = "ping -c 1 -W 5 198.18.7.2 >/dev/null && echo got || echo lost"
	if got := kept.in(t, "sh", "-c", asks); got != "got" {
		t.Error("the guest is not answered")
	}
	shown := kept.filter(t, "red")
	if len(shown.Policies) != 1 || shown.Policies[0].Name != "kept" || len(shown.Denied) != 1 ||
		shown.Denied[0].Direction != "ingress" || shown.Denied[0].Frames == 0 {
		t.Errorf("firewall show: %+v", shown)
	}
	for _, pod := range peer.pods(t) {
		out, _, _ := kept.Virtctl(t.Context(), nil, "-n", ns, "why", "kept", "--from", pod.Name, "--port", "80")
		if !strings.Contains(out, "multinetworkpolicy/kept") || !strings.Contains(out, "NetworkIngressDenied") {
			t.Errorf("why: %s", out)
		}
	}

	// Open at a port to the other guest, whose address only it knows.
	open := map[string]any{
		"podSelector": labelsOf(kept),
		"ingress": []any{map[string]any{
			"from":  []any{map[string]any{"podSelector": labelsOf(peer)}},
			"ports": []any{map[string]any{"port": int64(80)}},
		}},
	}
	c.networkPolicy(t, ns, "kept", open)
	becomes("the port is open", fetch, "got")
	becomes6("the port is open", "got")
	becomes("nothing else is open", echo, "lost")

	// Closed again, and the other guest tries all the time from here on: nothing passes while virt-handler restarts and
	// the guest moves.
	c.networkPolicy(t, ns, "kept", selected)
	becomes("the guest is closed again", fetch, "lost")
	peer.in(t, "sh", "-c", "rm -f /tmp/stop /tmp/got; (while [ ! -e /tmp/stop ]; do "+
		"wget -q -O /dev/null -T 2 http://198.18.7.1/here && echo x >>/tmp/got; done) >/dev/null 2>&1 & "+
		"echo begun")
	c.restartHandlerOf(t, kept)
	becomes("after virt-handler's restart the guest is closed", echo, "lost")
	if got := kept.filter(t, "red"); len(got.Policies) != 1 || got.Denied[0].Frames < shown.Denied[0].Frames {
		t.Errorf("after virt-handler's restart: %+v, and before %+v", got, shown)
	}
	// A network without policies that the VM names is not yet the one that the guest is on.
	c.network(t, ns, "free", `{"cniVersion":"1.0.0","name":"free","type":"bridge","bridge":"lan1","ipam":{}}`)
	on := func(definition string) {
		t.Helper()
		kept.edit(t, func(spec *v1.VirtualMachineInstanceSpec) { spec.Networks[1].Multus.NetworkName = definition })
		eventually(t, time.Minute, "the VMI names the network", func() string {
			return strings.TrimPrefix(kept.vmi(t).Spec.Networks[1].Multus.NetworkName, definition)
		})
	}
	on("free")
	c.restartHandlerOf(t, kept)
	becomes("on its way to a network without policies the guest is closed", echo, "lost")
	if got := kept.filter(t, "red"); len(got.Policies) != 1 || got.Policies[0].Name != "kept" {
		t.Errorf("on its way to a network without policies: %+v", got)
	}
	on("red")
	kept.waitMigration(t, kept.migrate(t, "closed"), v1.MigrationSucceeded)
	becomes("where it has moved to the guest is closed", echo, "lost")
	becomes6("where it has moved to the guest is closed", "lost")
	if got := peer.in(t, "sh", "-c", "touch /tmp/stop; sleep 2; cat /tmp/got 2>/dev/null | wc -l"); got != "0" {
		t.Errorf("%s connections passed while the guest was closed", got)
	}

	// The policy changes while the guest moves.
	back := kept.migrate(t, "back")
	eventually(t, time.Minute, "the migration has begun", func() string {
		if state := kept.vmi(t).Status.MigrationState; state == nil || state.MigrationUID != back.UID ||
			state.TargetPod == "" {
			return "not yet"
		}
		return ""
	})
	c.networkPolicy(t, ns, "kept", open)
	kept.waitMigration(t, back, v1.MigrationSucceeded)
	becomes("where it is again the port is open", fetch, "got")
	becomes6("where it is again the port is open", "got")
	becomes("and nothing else", echo, "lost")

	// What the guest sends is closed, too, but for the answers.
	c.networkPolicy(t, ns, "silent", map[string]any{"podSelector": labelsOf(kept), "policyTypes": []any{"Egress"}})
	eventually(t, time.Minute, "the guest asks nobody", func() string {
		return strings.TrimPrefix(kept.in(t, "sh", "-c", asks), "lost")
	})
	becomes("the guest answers still", fetch, "got")
}

// restartHandlerOf kills the virt-handler of a guest's node and waits until it is back.
func (c *cluster) restartHandlerOf(t *testing.T, g *guest) {
	t.Helper()
	node := g.vmi(t).Status.NodeName
	for _, pod := range c.componentPods(t, names.VirtHandler) {
		if pod.Spec.NodeName != node {
			continue
		}
		restarts := pod.Status.ContainerStatuses[0].RestartCount
		kill(t, string(pod.UID), "virt-server")
		eventually(t, 2*time.Minute, "virt-handler is back", func() string {
			for _, now := range c.componentPods(t, names.VirtHandler) {
				status := now.Status.ContainerStatuses[0]
				if now.UID == pod.UID && (status.RestartCount == restarts || !status.Ready) {
					return "not yet"
				}
			}
			return ""
		})
		return
	}
	t.Fatalf("node %s has no virt-handler", node)
}
