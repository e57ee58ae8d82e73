//go:build e2e

package e2e

import (
	"maps"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// macs are the MAC addresses of a guest by the interface's name, once it has as many.
func (g *guest) macs(t *testing.T, interfaces int) map[string]string {
	t.Helper()
	var out map[string]string
	eventually(t, bootTime, g.name+" has its interfaces", func() string {
		out = map[string]string{}
		for _, row := range g.vmi(t).Status.Interfaces {
			if row.Name != "" && row.MAC != "" {
				out[row.Name] = row.MAC
			}
		}
		if len(out) != interfaces {
			return "not yet"
		}
		return ""
	})
	return out
}

// A VM that says nothing of MAC addresses has the same ones after it was stopped and started, on the pod network and on
// one of Multus, and its spec stays as it was; no other VM gets one of them on that network.
func TestMACsStay(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.network(t, ns, "red", `{"cniVersion":"1.0.0","name":"red","type":"bridge","bridge":"lan1","ipam":{}}`)
	g := c.create(t, newVM(ns, "keeps", v1.RunStrategyAlways, withNetwork("red", "red")))
	g.waitPhase(t, bootTime, v1.Scheduled, v1.Running)
	first := g.macs(t, 2)
	c.virtctl(t, nil, "-n", ns, "stop", g.name, "--force", "--grace-period=0", "--wait")
	g.waitGone(t, bootTime)
	c.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitPhase(t, bootTime, v1.Scheduled, v1.Running)
	if again := g.macs(t, 2); !maps.Equal(again, first) {
		t.Errorf("first %v, then %v", first, again)
	}
	for _, nic := range g.vm(t).Spec.Template.Spec.Domain.Devices.Interfaces {
		if nic.MacAddress != "" {
			t.Errorf("the spec of %s was given %s", nic.Name, nic.MacAddress)
		}
	}
	withMAC := func(name, nic, mac string) *v1.VirtualMachine {
		return newVM(ns, name, v1.RunStrategyHalted, withNetwork("red", "red"), func(vm *v1.VirtualMachine) {
			interfaces := vm.Spec.Template.Spec.Domain.Devices.Interfaces
			for i := range interfaces {
				if interfaces[i].Name == nic {
					interfaces[i].MacAddress = mac
				}
			}
		})
	}
	for nic, mac := range first {
		err := c.Client.Create(t.Context(), withMAC("thief-"+nic, nic, strings.ToUpper(mac)))
		if err == nil || !strings.Contains(err.Error(), mac+" is the MAC address of VM "+ns+"/keeps, interface "+nic) {
			t.Errorf("a VM with the address of %s: %v", nic, err)
		}
	}
	c.create(t, withMAC("elsewhere", "red", first["default"])) // a network of its own
}
