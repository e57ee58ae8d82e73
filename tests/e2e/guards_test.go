//go:build e2e

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A guest keeps the address that its network has given it when the pod of its next node gets another, and sends from no
// third one: before it moves, where it has moved to, and back.
func TestAddressMoves(t *testing.T) {
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
	other := c.create(t, newVM(ns, "other", v1.RunStrategyAlways,
		withNetwork("first", "first", func(nic *v1.Interface) { nic.State = v1.InterfaceStateLinkDown }),
		withNetwork("second", "second"),
		withNetworkData("eth0: {dhcp4: true}, eth2: {dhcp4: true}")))
	there := other.waitPhase(t, bootTime, v1.Scheduled, v1.Running).Status.NodeName
	mover := c.create(t, newVM(ns, "mover", v1.RunStrategyAlways,
		withNetwork("first", "first"),
		withNetworkData("eth0: {dhcp4: true}, eth1: {dhcp4: true}"),
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
	}
	check("at home")
	mover.waitMigration(t, mover.migrate(t, "there"), v1.MigrationSucceeded)
	mover.onlyOn(t, there)
	check("there")
	mover.waitMigration(t, mover.migrate(t, "back"), v1.MigrationSucceeded)
	mover.onlyOn(t, home)
	check("back")
}
