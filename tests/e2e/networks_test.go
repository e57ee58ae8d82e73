//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
)

// network makes a NetworkAttachmentDefinition.
func (c *cluster) network(t *testing.T, ns, name, config string) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"namespace": ns, "name": name},
		"spec":     map[string]any{"config": config},
	}}
	if err := c.Client.Create(t.Context(), definition); err != nil {
		t.Fatalf("create network %s (the cluster needs virt-local up --multus): %v", name, err)
	}
}

// withNetwork adds a bridged interface.
func withNetwork(name, definition string, change ...func(*v1.Interface)) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		nic := v1.Interface{
			Name: name, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
		}
		for _, f := range change {
			f(&nic)
		}
		spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, nic)
		spec.Networks = append(spec.Networks,
			v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: definition}}})
	}
}

// withNetworkData has the guest configure its interfaces, with the user data that it has or else some of its own.
func withNetworkData(config string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		if spec.Volumes[len(spec.Volumes)-1].CloudInitNoCloud == nil {
			withUserData("#cloud-config\nuser: root\npassword: tiny\n")(vm)
		}
		spec.Volumes[len(spec.Volumes)-1].CloudInitNoCloud.NetworkData = "version: 2\nethernets: {" + config + "}\n"
	}
}

// in runs a program in the guest, by its agent, and returns what it printed. It is tried again until the agent is
// there and the program succeeds.
func (g *guest) in(t *testing.T, program ...string) string {
	t.Helper()
	var out string
	eventually(t, bootTime, g.name+": "+strings.Join(program, " "), func() string {
		stdout, stderr, err := g.Virtctl(t.Context(), nil,
			append([]string{"-n", g.ns, "exec", g.name, "--"}, program...)...)
		if err != nil {
			return err.Error() + ": " + stdout + stderr
		}
		out = strings.TrimSpace(stdout)
		return ""
	})
	return out
}

// row is the status of one of the guest's interfaces, once it has an address of the guest's.
func (g *guest) row(t *testing.T, name, address string) v1.VirtualMachineInstanceNetworkInterface {
	t.Helper()
	var row v1.VirtualMachineInstanceNetworkInterface
	eventually(t, bootTime, g.name+" has "+address+" on "+name, func() string {
		vmi := g.vmi(t)
		if vmi == nil {
			return "there is no VMI"
		}
		for _, row = range vmi.Status.Interfaces {
			if row.Name == name && row.IP == address && strings.Contains(row.InfoSource, "guest-agent") {
				return ""
			}
		}
		return "not yet"
	})
	return row
}

// Two guests with three networks each reach each other on all of them, from node to node and on one node, and keep
// everything when one of them moves and comes back.
func TestNetworks(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.network(t, ns, "red", `{"cniVersion":"1.0.0","name":"red","type":"bridge","bridge":"lan1","ipam":{}}`)
	c.network(t, ns, "blue", `{"cniVersion":"1.0.0","name":"blue","type":"bridge","bridge":"lan2","ipam":{}}`)
	c.network(t, ns, "leased",
		`{"cniVersion":"1.0.0","name":"leased","type":"bridge","bridge":"lan2","ipam":{"type":"static","addresses":[{"address":"203.0.113.7/24"}]}}`)

	mover := c.create(t, newVM(ns, "mover", v1.RunStrategyAlways,
		withNetwork("red", "red", func(nic *v1.Interface) { nic.MacAddress = "02:00:00:00:01:01" }),
		withNetwork("blue", ns+"/blue"),
		withNetwork("dark", "red", func(nic *v1.Interface) { nic.State = v1.InterfaceStateLinkDown }),
		withNetworkData(c.eth0(t)+", eth1: {addresses: [198.18.1.1/24]}, "+
			"eth2: {addresses: [203.0.113.1/24]}, eth3: {addresses: [198.18.3.1/24]}")))
	home := mover.waitPhase(t, bootTime, v1.Scheduled, v1.Running).Status.NodeName
	other := c.create(t, newVM(ns, "other", v1.RunStrategyAlways,
		withNetwork("red", "red"),
		withNetwork("leased", "leased"),
		withNetworkData(c.eth0(t)+", eth1: {addresses: [198.18.1.2/24]}, eth2: {dhcp4: true}"),
		func(vm *v1.VirtualMachine) {
			spec := &vm.Spec.Template.Spec
			spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{
				Bridge: &v1.InterfaceBridge{},
			}
			spec.Affinity = &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{home}},
					}}},
				}},
			}
		}))
	red, blue := mover.row(t, "red", "198.18.1.1"), mover.row(t, "blue", "203.0.113.1")
	if red.MAC != "02:00:00:00:01:01" || red.InterfaceName != "eth1" || red.PodInterfaceName != "podb1f51a511f1" ||
		red.InfoSource != "domain, guest-agent, multus-status" || red.LinkState != "up" {
		t.Errorf("status of red: %+v", red)
	}
	if rows := mover.vmi(t).Status.Interfaces; rows[3].Name != "dark" || rows[3].LinkState != "down" {
		t.Errorf("status of dark: %+v", rows)
	}
	leased := other.row(t, "leased", "203.0.113.7") // by DHCP, from Multus' address management

	all := func(where string) {
		t.Helper()
		for _, address := range []string{"198.18.1.2", leased.IP} {
			if out := mover.in(t, "ping", "-c", "1", "-W", "5", address); !strings.Contains(out, " 0% packet loss") {
				t.Errorf("%s: %s", where, out)
			}
		}
		// From the bridge on the pod network to the other pod's address, wherever it is.
		if out := other.in(t, "wget", "-q", "-O", "-", "-T", "5",
			"http://"+net.JoinHostPort(mover.vmi(t).Status.Interfaces[0].IP, "80")+"/cgi-bin/info"); out == "" {
			t.Errorf("%s: the pod network gave nothing", where)
		}
		if carrier := mover.in(t, "cat", "/sys/class/net/eth3/carrier"); carrier != "0" {
			t.Errorf("%s: the link that is down has carrier %q", where, carrier)
		}
		if v4, _ := c.families(t); !v4 {
			return
		}
		if out := mover.in(t, "udhcpc", "-f", "-n", "-q", "-i", "eth0", "-s", "/bin/true"); strings.Contains(out,
			"NAK") {
			t.Errorf("%s: the guest's lease: %s", where, out)
		}
	}
	all("from node to node")
	// Nobody is asked for by an address that the network has not given.
	out := other.in(t, "sh", "-c", "ip address add 203.0.113.8/24 dev eth2; ping -c 2 -W 2 -I 203.0.113.8 203.0.113.1;"+
		" ip address del 203.0.113.8/24 dev eth2")
	if !strings.Contains(out, "100% packet loss") {
		t.Errorf("a guest sends from another address: %s", out)
	}
	if other.dropped(t, "leased") == 0 {
		t.Error("nothing is counted that was dropped")
	}

	// An interface that comes now is the guest's when it has moved.
	const greenMAC = "02:00:00:00:01:04"
	mover.edit(t, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces,
			v1.Interface{Name: "green", MacAddress: greenMAC})
		spec.Networks = append(spec.Networks,
			v1.Network{Name: "green", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}}})
	})
	eventually(t, 30*time.Second, "the guest must migrate for its new interface", func() string {
		for _, condition := range mover.vmi(t).Status.Conditions {
			if condition.Type == v1.VirtualMachineInstanceMigrationRequired &&
				condition.Status == corev1.ConditionTrue {
				return mover.restartMessage(t)
			}
		}
		return "no condition"
	})
	green := func(where string) {
		t.Helper()
		eventually(t, bootTime, where+", the guest has the new interface", func() string {
			rows := mover.vmi(t).Status.Interfaces
			for _, row := range rows {
				if row.Name == "green" && row.MAC == greenMAC &&
					row.InfoSource == "domain, guest-agent, multus-status" {
					return ""
				}
			}
			return fmt.Sprintf("%+v", rows)
		})
	}

	// The other guest asks without a pause while the guest moves.
	asked := make(chan string, 1)
	go func() {
		stdout, stderr, err := other.Virtctl(t.Context(), nil, "-n", ns, "exec", "other", "--", "ping", "-c", "300",
			"-i", "0.1", "-w", "120", "198.18.1.1")
		if err != nil {
			stdout += stderr + err.Error()
		}
		asked <- stdout
	}()
	there := mover.migrate(t, "there")
	mover.waitMigration(t, there, v1.MigrationSucceeded)
	away := other.vmi(t).Status.NodeName
	mover.onlyOn(t, away)
	all("on one node")
	green("on one node")
	other.in(t, "ip", "address", "replace", "198.18.4.2/24", "dev", "eth1")
	mover.in(t, "sh", "-c", "ip address replace 198.18.4.1/24 dev eth4 && ip link set eth4 up")
	answers := func() {
		t.Helper()
		if out := mover.in(t, "ping", "-c", "3", "-W", "5", "198.18.4.2"); strings.Contains(out, "100% packet loss") {
			t.Errorf("over the new interface: %s", out)
		}
	}
	answers()
	for _, condition := range mover.vmi(t).Status.Conditions {
		if condition.Type == v1.VirtualMachineInstanceMigrationRequired {
			t.Errorf("the guest still must migrate: %s", condition.Message)
		}
	}
	if got := mover.row(t, "blue", "203.0.113.1"); got.MAC != blue.MAC {
		t.Errorf("blue's MAC was %s and is %s", blue.MAC, got.MAC)
	}
	if got := mover.row(t, "red", "198.18.1.1"); got.InfoSource != red.InfoSource ||
		got.PodInterfaceName != red.PodInterfaceName {
		t.Errorf("red was %+v and is %+v", red, got)
	}
	if body, err := page(mover.forwarded(t, 80, forward.TCP), "/cgi-bin/info"); err != nil || len(body) == 0 {
		t.Errorf("a forwarded port after the migration: %q, %v", body, err)
	}

	back := mover.migrate(t, "back")
	mover.waitMigration(t, back, v1.MigrationSucceeded)
	mover.onlyOn(t, home)
	all("back")
	green("back")
	answers()
	answer := <-asked
	t.Log(answer[max(0, len(answer)-200):])
	if !strings.Contains(answer, "round-trip") {
		t.Errorf("pings while the guest moved: %s", answer)
	}

	if _, errs, err := mover.Virtctl(t.Context(), nil, "-n", ns, "restart", "mover", "--wait"); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	green("after a restart")
}

// A guest whose network Multus does not know waits, and says for what.
func TestNetworkMissing(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "lost", v1.RunStrategyAlways, withNetwork("red", "nowhere")))
	eventually(t, bootTime, "virtctl why names the network", func() string {
		out, errs, _ := g.Virtctl(t.Context(), nil, "-n", ns, "why", "lost")
		if strings.Contains(out, "nowhere") {
			return ""
		}
		return instead(out + errs)
	})
	if err := c.Client.Delete(t.Context(),
		&v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lost"}}); err != nil {
		t.Fatal(err)
	}
	g.waitGone(t, time.Minute)
}
