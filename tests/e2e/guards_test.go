//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/client/action/firewall"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// dropped is how many frames of the guest's were dropped on an interface.
func (g *guest) dropped(t *testing.T, nic string) (frames uint64) {
	t.Helper()
	for _, n := range g.counters(t, nic) {
		frames += n
	}
	return frames
}

// counters are the frames of the guest's that were dropped on an interface by kind, as `virtctl firewall show` has
// them.
func (g *guest) counters(t *testing.T, nic string) map[network.Spoof]uint64 {
	t.Helper()
	var report firewall.Report
	out := g.virtctl(t, nil, "-n", g.ns, "firewall", "show", g.name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	counts := map[network.Spoof]uint64{}
	for _, row := range report.Interfaces {
		if row.Name != nic {
			continue
		}
		for _, d := range row.Dropped {
			counts[network.Spoof(d.Kind)] = d.Frames
		}
	}
	return counts
}

// holds waits until a link in the guest has the address. The guest's status may have it before, from the pod.
func (g *guest) holds(t *testing.T, link, address string) {
	t.Helper()
	g.in(t, "sh", "-c", "ip address show dev "+link+" | grep -qw "+address)
}

// A guest keeps the address that its network has given it when the pod of its next node gets another, and sends from no
// third one: before it moves, where it has moved to, and back.
func TestAddressMoves(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	given := func(name, first, last string) {
		// Each node counts by itself.
		c.network(t, ns, name, `{"cniVersion":"1.0.0","name":"`+name+`","type":"bridge","bridge":"lan2","ipam":{`+
			`"type":"host-local","dataDir":"/run/cni-`+ns+`","ranges":[[{"subnet":"203.0.115.0/24",`+
			`"rangeStart":"`+first+`","rangeEnd":"`+last+`"}]]}}`)
	}
	given("first", "203.0.115.10", "203.0.115.19")
	given("second", "203.0.115.30", "203.0.115.39")
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	label := []byte(`{"metadata":{"labels":{"` + network.AllowSpoofing + `":"true"}}}`)
	if err := c.Client.Patch(t.Context(), space, client.RawPatch(types.MergePatchType, label)); err != nil {
		t.Fatal(err)
	}
	other := c.create(t, newVM(ns, "other", v1.RunStrategyAlways,
		func(vm *v1.VirtualMachine) {
			vm.Spec.Template.ObjectMeta.Annotations = map[string]string{network.AllowSpoofing: "second"}
		},
		withNetwork("first", "first", func(nic *v1.Interface) { nic.State = v1.InterfaceStateLinkDown }),
		withNetwork("second", "second"),
		withNetworkData(c.eth0(t)+", eth2: {dhcp4: true}")))
	there := other.waitPhase(t, bootTime, v1.Scheduled, v1.Running).Status.NodeName
	mover := c.create(t, newVM(ns, "mover", v1.RunStrategyAlways,
		withNetwork("first", "first"),
		withNetworkData(c.eth0(t)+", eth1: {dhcp4: true}"),
		func(vm *v1.VirtualMachine) {
			vm.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
					Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{there}},
					}},
				}},
			}}
		}))
	other.row(t, "second", "203.0.115.30")
	mover.row(t, "first", "203.0.115.10")
	// An address that comes while another of its subnet is there is a secondary one, and goes with that other.
	other.holds(t, "eth2", "203.0.115.30")
	mover.holds(t, "eth1", "203.0.115.10")
	free := other.in(t, "sh", "-c", "ip address add 203.0.115.98/24 dev eth2; ping -c 3 -W 5 -I 203.0.115.98 "+
		"203.0.115.10; ip address del 203.0.115.98/24 dev eth2")
	if strings.Contains(free, "100% packet loss") {
		t.Errorf("who may send from any address does not: %s", free)
	}
	home := mover.vmi(t).Status.NodeName
	check := func(where string) {
		t.Helper()
		mover.row(t, "first", "203.0.115.10")
		if out := mover.in(t, "ping", "-c", "3", "-W", "5", "203.0.115.30"); strings.Contains(out, "100% packet loss") {
			t.Errorf("%s: %s", where, out)
		}
		out := mover.in(t, "sh", "-c", "ip address add 203.0.115.99/24 dev eth1; ping -c 2 -W 2 -I 203.0.115.99 "+
			"203.0.115.30; ip address del 203.0.115.99/24 dev eth1")
		if !strings.Contains(out, "100% packet loss") {
			t.Errorf("%s the guest sends from another address: %s", where, out)
		}
		if mover.dropped(t, "first") == 0 {
			t.Errorf("%s nothing is counted that was dropped", where)
		}
	}
	check("at home")
	mover.waitMigration(t, mover.migrate(t, "there"), v1.MigrationSucceeded)
	mover.onlyOn(t, there)
	check("there")
	mover.waitMigration(t, mover.migrate(t, "back"), v1.MigrationSucceeded)
	mover.onlyOn(t, home)
	check("back")
}
