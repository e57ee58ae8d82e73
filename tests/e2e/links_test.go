//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// setState changes the state of an interface in the VM's template.
func (g *guest) setState(t *testing.T, name string, state v1.InterfaceState) {
	t.Helper()
	g.edit(t, func(spec *v1.VirtualMachineInstanceSpec) {
		for i := range spec.Domain.Devices.Interfaces {
			if nic := &spec.Domain.Devices.Interfaces[i]; nic.Name == name {
				nic.State = state
			}
		}
	})
}

// edit changes the VM's template.
func (g *guest) edit(t *testing.T, change func(*v1.VirtualMachineInstanceSpec)) {
	t.Helper()
	vm := g.vm(t)
	before := vm.DeepCopy()
	change(&vm.Spec.Template.Spec)
	if err := g.Client.Patch(t.Context(), vm, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// restartMessage is what the VM's condition RestartRequired says; empty without.
func (g *guest) restartMessage(t *testing.T) string {
	t.Helper()
	for _, c := range g.vm(t).Status.Conditions {
		if c.Type == v1.VirtualMachineRestartRequired {
			return c.Message
		}
	}
	return ""
}

// The cable of a running guest's interface is pulled and plugged in by editing its VM, the interface is unplugged,
// comes back, and is taken out; what cannot be done while the guest runs is named.
func TestInterfaceState(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.network(t, ns, "red", `{"cniVersion":"1.0.0","name":"red","type":"bridge","bridge":"lan3","ipam":{}}`)
	const mac = "02:00:00:00:03:01"
	g := c.create(t, newVM(ns, "cables", v1.RunStrategyAlways,
		withNetwork("red", "red", func(nic *v1.Interface) { nic.MacAddress = mac }),
		withUserData("#cloud-config\nuser: root\npassword: tiny\n")))
	g.waitLogin(t)
	want := func(up, there bool) {
		t.Helper()
		eventually(t, bootTime, fmt.Sprintf("the guest has the interface: %v, its cable: %v", there, up),
			func() string {
				text := g.in(t, "sh",
					"-c", "ip link set eth1 up 2>/dev/null; cat /sys/class/net/eth1/carrier 2>/dev/null || echo none")
				if expected := map[bool]string{
					true:  map[bool]string{true: "1", false: "0"}[up],
					false: "none",
				}[there]; text != expected {
					return "it sees " + text
				}
				for _, row := range g.vmi(t).Status.Interfaces {
					if row.Name == "red" && (!there || (row.LinkState == "up") != up) {
						return fmt.Sprintf("status says %+v", row)
					}
				}
				return ""
			})
		if message := g.restartMessage(t); message != "" {
			t.Errorf("restart required: %s", message)
		}
	}
	want(true, true)
	uid := g.vmi(t).UID
	g.setState(t, "red", v1.InterfaceStateLinkDown)
	want(false, true)
	g.setState(t, "red", "")
	want(true, true)
	g.setState(t, "red", v1.InterfaceStateAbsent)
	want(false, false)
	// It comes back: the pod is connected to its network still.
	g.setState(t, "red", v1.InterfaceStateLinkUp)
	want(true, true)
	if address := g.in(t, "cat", "/sys/class/net/eth1/address"); address != mac {
		t.Errorf("it came back as %s", address)
	}
	// One that was unplugged may be taken out of the VM.
	g.setState(t, "red", v1.InterfaceStateAbsent)
	want(false, false)
	g.edit(t, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.Interfaces, spec.Networks = spec.Domain.Devices.Interfaces[:1], spec.Networks[:1]
	})
	eventually(t, 30*time.Second, "the instance has no interface red any more", func() string {
		vmi, vm := g.vmi(t), g.vm(t)
		if len(vmi.Spec.Domain.Devices.Interfaces) == 1 && vm.Status.ObservedGeneration == vm.Generation &&
			g.restartMessage(t) == "" {
			return ""
		}
		return fmt.Sprintf("%+v %s", vmi.Spec.Domain.Devices.Interfaces, g.restartMessage(t))
	})
	// What cannot be done while it runs is named.
	g.edit(t, func(spec *v1.VirtualMachineInstanceSpec) { spec.Domain.Devices.Interfaces[0].Model = "e1000e" })
	eventually(t, 30*time.Second, "what needs a restart is named", func() string {
		if message := g.restartMessage(t); !strings.Contains(message, "domain.devices.interfaces[default]") {
			return instead(message)
		}
		return ""
	})
	if g.vmi(t).UID != uid {
		t.Error("the guest was restarted")
	}
}
