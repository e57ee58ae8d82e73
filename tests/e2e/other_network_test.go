//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// migrationRequired is what the condition MigrationRequired of the guest's VMI says; empty without.
func (g *guest) migrationRequired(t *testing.T) string {
	t.Helper()
	for _, c := range g.vmi(t).Status.Conditions {
		if c.Type == v1.VirtualMachineInstanceMigrationRequired && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// The interface of a running guest moves to another network when its VM's template names that and the guest has
// migrated: the guest keeps the interface and its MAC, is on the new network alone, and may not say there what it could
// on the old one. It is there still when it is started again.
func TestInterfaceMovesNetwork(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	for name, config := range map[string]string{
		"red":       `"bridge":"lan1","ipam":{"type":"static","addresses":[{"address":"198.18.5.1/24"}]}`,
		"blue":      `"bridge":"lan2","ipam":{"type":"static","addresses":[{"address":"198.18.6.1/24"}]}`,
		"red-bare":  `"bridge":"lan1","ipam":{}`,
		"blue-bare": `"bridge":"lan2","ipam":{}`,
	} {
		c.network(t, ns, name, `{"cniVersion":"1.0.0","name":"`+name+`","type":"bridge",`+config+`}`)
	}
	const mac = "02:00:00:00:05:01"
	mover := c.create(t, newVM(ns, "mover", v1.RunStrategyAlways,
		withNetwork("lan", "red", func(nic *v1.Interface) { nic.MacAddress = mac }),
		withNetworkData(c.eth0(t)+", eth1: {addresses: [198.18.5.1/24, 198.18.6.1/24]}")))
	c.create(t, newVM(ns, "other", v1.RunStrategyAlways,
		withNetwork("red", "red-bare"), withNetwork("blue", "blue-bare"),
		withNetworkData(c.eth0(t)+", eth1: {addresses: [198.18.5.2/24]}, eth2: {addresses: [198.18.6.2/24]}"))).
		in(t, "true")
	reaches := func(from, to string) bool {
		t.Helper()
		out := mover.in(t, "sh", "-c", "ping -c 3 -W 5 -I "+from+" "+to+"; true")
		return !strings.Contains(out, "100% packet loss")
	}
	on := func(where string, red, blue bool) {
		t.Helper()
		if got := reaches("198.18.5.1", "198.18.5.2"); got != red {
			t.Errorf("%s the guest reaches red: %v", where, got)
		}
		if got := reaches("198.18.6.1", "198.18.6.2"); got != blue {
			t.Errorf("%s the guest reaches blue: %v", where, got)
		}
	}
	eventually(t, bootTime, "the guests are on one network", func() string {
		if !reaches("198.18.5.1", "198.18.5.2") {
			return "no answer"
		}
		return ""
	})
	on("at first", true, false)
	boot := mover.in(t, "cat", "/proc/sys/kernel/random/boot_id")
	name := func(definition string) {
		t.Helper()
		mover.edit(t, func(spec *v1.VirtualMachineInstanceSpec) { spec.Networks[1].Multus.NetworkName = definition })
	}
	required := func(want bool) {
		t.Helper()
		eventually(t, 30*time.Second, "the condition MigrationRequired", func() string {
			said := mover.migrationRequired(t)
			if (said != "") != want || want && !strings.Contains(said, "its interface lan on its new network") {
				return "it says: " + said
			}
			return mover.restartMessage(t)
		})
	}
	name("blue")
	required(true)
	name("red")
	required(false) // it is taken back
	name("blue")
	required(true)
	on("before it migrates", true, false)
	mover.waitMigration(t, mover.migrate(t, "move"), v1.MigrationSucceeded)
	required(false)
	before := mover.counters(t, "lan")[network.SpoofARP]
	on("after it has migrated", false, true)
	if after := mover.counters(t, "lan")[network.SpoofARP]; after == before {
		t.Error("the guest may say that it has its address of the old network")
	}
	if out := mover.in(t, "cat", "/sys/class/net/eth1/address"); out != mac {
		t.Errorf("the guest's interface has the MAC %s", out)
	}
	if now := mover.in(t, "cat", "/proc/sys/kernel/random/boot_id"); now != boot {
		t.Error("the guest has booted anew")
	}
	if _, errs, err := mover.Virtctl(t.Context(), nil, "-n", ns, "restart", "mover", "--wait"); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	eventually(t, bootTime, "the guest is on the new network when it is started again", func() string {
		if !reaches("198.18.6.1", "198.18.6.2") {
			return "no answer"
		}
		return ""
	})
}
