//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// recorded is the address that the VM's record has of an interface, once it has one.
func (g *guest) recorded(t *testing.T, nic string) string {
	t.Helper()
	var out string
	eventually(t, bootTime, g.name+" has its address of "+nic+" recorded", func() string {
		addresses := ipaddress.Recorded(g.vm(t))[nic].Addresses
		if len(addresses) != 1 {
			return "not yet"
		}
		out = addresses[0]
		return ""
	})
	return out
}

// anew stops the VM and starts it.
func (g *guest) anew(t *testing.T) {
	t.Helper()
	g.virtctl(t, nil, "-n", g.ns, "stop", g.name, "--force", "--grace-period=0", "--wait")
	g.waitGone(t, bootTime)
	g.virtctl(t, nil, "-n", g.ns, "start", g.name)
	g.waitPhase(t, bootTime, v1.Scheduled, v1.Running)
}

// A VM has the address that its network gave it at its first start also after it was stopped and started, where the
// plugin would give another; one that is wished for is given, by host-local and by static; both stay when the guest
// moves, which their network hears, and DHCP goes on to offer them. An IPv6 address does, too, where there is IPv6.
// What cannot be had or kept is said.
func TestAddressStays(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.network(t, ns, "local", `{"cniVersion":"1.0.0","name":"local","type":"bridge","bridge":"lan2",`+
		`"capabilities":{"ips":true,"mac":true},"ipam":{"type":"host-local","dataDir":"/run/cni-`+ns+`",`+
		`"ranges":[[{"subnet":"203.0.116.0/24","rangeStart":"203.0.116.10","rangeEnd":"203.0.116.19"}]]}}`)
	c.network(t, ns, "static", `{"cniVersion":"1.0.0","name":"static","type":"bridge","bridge":"lan2",`+
		`"capabilities":{"ips":true,"mac":true},"ipam":{"type":"static"}}`)
	c.network(t, ns, "elsewhere", `{"cniVersion":"1.0.0","name":"elsewhere","type":"bridge","bridge":"lan2",`+
		`"ipam":{"type":"whereabouts","range":"203.0.117.0/24"}}`)
	wish := func(text string) func(*v1.VirtualMachine) {
		return func(vm *v1.VirtualMachine) {
			vm.Spec.Template.ObjectMeta.Annotations = map[string]string{ipaddress.Wish: text}
		}
	}
	on := func(node string) func(*v1.VirtualMachine) {
		return func(vm *v1.VirtualMachine) {
			vm.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
					Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
					}},
				}},
			}}
		}
	}
	const data, blue6 = "eth0: {dhcp4: true}, eth1: {dhcp4: true}", "2001:db8:116::77"
	blue, eth2 := []string{"203.0.116.77"}, ", eth2: {dhcp4: true}"
	wishes := `{"red":["203.0.116.17"],"blue":["203.0.116.77/24"]}`
	_, six := c.families(t)
	if six {
		blue, eth2 = append(blue, blue6), ", eth2: {dhcp4: true, dhcp6: true}"
		wishes = `{"red":["203.0.116.17"],"blue":["203.0.116.77/24","` + blue6 + `/64"]}`
	}
	first := c.create(t, newVM(ns, "first", v1.RunStrategyAlways, withNetwork("red", "local"),
		withNetworkData(data)))
	home := first.waitPhase(t, bootTime, v1.Scheduled, v1.Running).Status.NodeName
	address := first.recorded(t, "red")
	first.row(t, "red", address)
	// host-local counts on: without a request it would not give the same again.
	first.edit(t, func(spec *v1.VirtualMachineInstanceSpec) { spec.Affinity = sameNode(home) })
	first.anew(t)
	if got := first.recorded(t, "red"); got != address {
		t.Errorf("first %s, then %s", address, got)
	}
	first.row(t, "red", address)

	wished := c.create(t, newVM(ns, "wished", v1.RunStrategyAlways, withNetwork("red", "local"),
		withNetwork("blue", "static"), withNetworkData(data+eth2), on(home), wish(wishes)))
	start := wished.waitPhase(t, bootTime, v1.Scheduled, v1.Running).Status.NodeName
	check := func(where string) {
		t.Helper()
		wished.row(t, "red", "203.0.116.17")
		wished.row(t, "blue", "203.0.116.77")
		for link, leased := range map[string]string{"eth1": "203.0.116.17", "eth2": "203.0.116.77"} {
			out := wished.in(t, "sh", "-c", "udhcpc -f -n -q -i "+link+" -s /bin/true 2>&1")
			if strings.Contains(out, "NAK") || !strings.Contains(out, leased) {
				t.Errorf("%s: the lease of %s: %s", where, link, out)
			}
		}
		if six {
			wished.holds(t, "eth2", blue6)
		}
	}
	check("at home")
	heard := first.overhear(t, "red")
	// A guest announces itself, too. Of addresses that it has not itself, only its node can speak.
	wished.in(t, "sh", "-c", "for l in eth1 eth2; do ip -o address show dev $l | "+
		"while read -r n dev family address rest; do echo $dev $address; done; done >/tmp/addresses && "+
		"ip address flush dev eth1 && ip address flush dev eth2")
	wished.waitMigration(t, wished.migrate(t, "there"), v1.MigrationSucceeded)
	if now := wished.vmi(t).Status.NodeName; now == start {
		t.Fatalf("the guest is on %s still", now)
	}
	heard.hearsOf(t, wished, "red", "203.0.116.17")
	heard.hearsOf(t, wished, "blue", blue...)
	wished.in(t, "sh", "-c", "while read -r dev address; do ip address add $address dev $dev; done </tmp/addresses")
	check("there")
	// Other networks: what the network chose stays with it, and what was wished for goes along.
	c.network(t, ns, "other", `{"cniVersion":"1.0.0","name":"other","type":"bridge","bridge":"lan2",`+
		`"capabilities":{"ips":true,"mac":true},"ipam":{"type":"host-local","dataDir":"/run/cni-other-`+ns+`",`+
		`"ranges":[[{"subnet":"203.0.118.0/24","rangeStart":"203.0.118.10","rangeEnd":"203.0.118.19"}]]}}`)
	c.network(t, ns, "static2", `{"cniVersion":"1.0.0","name":"static2","type":"bridge","bridge":"lan2",`+
		`"capabilities":{"ips":true,"mac":true},"ipam":{"type":"static"}}`)
	first.edit(t, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Affinity, spec.Networks[1].Multus.NetworkName = nil, "other"
	})
	wished.edit(t, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Networks[2].Multus.NetworkName = "static2"
	})
	eventually(t, time.Minute, "the VMIs name the networks", func() string {
		return strings.TrimPrefix(first.vmi(t).Spec.Networks[1].Multus.NetworkName, "other") +
			strings.TrimPrefix(wished.vmi(t).Spec.Networks[2].Multus.NetworkName, "static2")
	})
	got := ipaddress.Recorded(first.vmi(t))["red"]
	if got.Network != ns+"/local" || !slices.Contains(got.Addresses, address) {
		t.Errorf("on its way to another network the guest has %+v", got)
	}
	first.waitMigration(t, first.migrate(t, "first-moves"), v1.MigrationSucceeded)
	wished.waitMigration(t, wished.migrate(t, "wished-moves"), v1.MigrationSucceeded)
	eventually(t, time.Minute, "the addresses of the other network are recorded", func() string {
		for _, object := range []metav1.Object{first.vm(t), first.vmi(t)} {
			got := ipaddress.Recorded(object)["red"]
			if got.Network != ns+"/other" || len(got.Addresses) != 1 ||
				!strings.HasPrefix(got.Addresses[0], "203.0.118.") {
				return fmt.Sprintf("%T has %+v", object, got)
			}
		}
		return ""
	})
	moved := ipaddress.Recorded(first.vm(t))["red"].Addresses[0]
	for g, want := range map[*guest][4]string{
		first: {"red", "eth1", moved, "other"}, wished: {"blue", "eth2", "203.0.116.77", "static2"},
	} {
		out := g.in(t, "sh", "-c", "udhcpc -f -n -q -i "+want[1]+" -s /bin/true 2>&1")
		if !strings.Contains(out, want[2]) {
			t.Errorf("%s: the lease of %s on the other network: %s", g.name, want[1], out)
		}
		vmi := g.vmi(t)
		for _, pod := range g.pods(t) {
			asked := pod.Annotations[network.AnnotationNetworks]
			if life.GuestIn(vmi, &pod) && !strings.Contains(asked, `"name":"`+want[3]+`"`) {
				t.Errorf("%s has moved to a pod that asks for %s", g.name, asked)
			}
		}
		if got := g.filter(t, want[0]); !slices.Contains(got.Addresses, want[2]) {
			t.Errorf("%s may send from %v on the other network", g.name, got.Addresses)
		}
	}
	if got := wished.filter(t, "blue"); six && !slices.Contains(got.Addresses, blue6) {
		t.Errorf("wished may send from %v on the other network", got.Addresses)
	}
	if got := wished.vm(t).Spec.Template.Spec.Domain.Devices.Interfaces; got[1].MacAddress != "" {
		t.Errorf("the spec was given %+v", got)
	}

	refused := func(name, definition, text, want string) {
		t.Helper()
		err := c.Client.Create(t.Context(), newVM(ns, name, v1.RunStrategyHalted, withNetwork("red", definition),
			wish(text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	const red = "203.0.116.17"
	refused("thief", "local", `{"red":["`+red+`"]}`, red+" is the IP address of VM "+ns+"/wished, interface red")
	// What first had is nobody's any more.
	heir := newVM(ns, "heir", v1.RunStrategyHalted, withNetwork("red", "local"), wish(`{"red":["`+address+`"]}`))
	if err := c.Client.Create(t.Context(), heir); err != nil {
		t.Errorf("an address that was left: %v", err)
	}
	refused("outside", "local", `{"red":["203.0.116.99"]}`, "203.0.116.99 is not among the addresses that network")
	refused("none", "elsewhere", `{"red":["203.0.117.9"]}`, "the IPAM plugin whereabouts")
	refused("bare", "static", `{"red":["203.0.116.78"]}`, "has no length of a prefix")
	_, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "create", "vm", "--name", "warned", "--run-strategy",
		"Halted", "--container-disk", "registry.example/tiny:1", "--network", "red=elsewhere", "--apply")
	if err != nil || !strings.Contains(stderr, "does not keep its IP address over starts") {
		t.Errorf("create vm: %s, %v", stderr, err)
	}
}

// sameNode requires a node.
func sameNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
			}}},
		},
	}}
}
