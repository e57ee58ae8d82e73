package apply

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

var update = flag.Bool("update", false, "write golden files")

// policies are those of the guest in the tests: it may be asked at some ports by some peers, and ask one name server.
func policies() multipolicy.Interface {
	addresses := func(all ...string) (out []netip.Addr) {
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	return multipolicy.Interface{Network: "default/red", Policies: []multipolicy.Policy{
		{
			Name: "names",
			Egress: &multipolicy.Direction{Rules: []multipolicy.Rule{{
				Addresses: addresses("10.42.1.53", "fd42::53"),
				Ports:     []multipolicy.Port{{Protocol: corev1.ProtocolUDP, First: 53, Last: 53}},
			}}},
		},
		{
			Name: "web",
			Ingress: &multipolicy.Direction{Rules: []multipolicy.Rule{
				{
					Addresses: addresses("10.42.1.9", "fd42::9"),
					Ports: []multipolicy.Port{
						{Protocol: corev1.ProtocolTCP, First: 80, Last: 80},
						{Protocol: corev1.ProtocolUDP, First: 1000, Last: 2000},
					},
				},
				{MACs: []string{thirdMAC.String()}},
				{
					Blocks: []multipolicy.Block{{
						CIDR:   netip.MustParsePrefix("10.42.2.0/24"),
						Except: []netip.Prefix{netip.MustParsePrefix("10.42.2.128/25")},
					}},
					Ports: []multipolicy.Port{{Protocol: corev1.ProtocolSCTP, Last: 65535}},
				},
			}},
		},
		{
			Name: "anybody",
			Ingress: &multipolicy.Direction{Rules: []multipolicy.Rule{{
				Any: true, Ports: []multipolicy.Port{{Protocol: corev1.ProtocolTCP, First: 22, Last: 22}},
			}}},
		},
	}}
}

// Policies of many peers fit, and those are found.
func TestManyPeers(t *testing.T) {
	of := multipolicy.Interface{Policies: []multipolicy.Policy{{Name: "many", Ingress: &multipolicy.Direction{}}}}
	rule := multipolicy.Rule{}
	for i := range 3000 {
		rule.Addresses = append(rule.Addresses, netip.AddrFrom4([4]byte{10, 43, byte(i >> 8), byte(i)}))
		rule.MACs = append(rule.MACs, net.HardwareAddr{2, 1, 0, 0, byte(i >> 8), byte(i)}.String())
	}
	of.Policies[0].Ingress.Rules = []multipolicy.Rule{rule}
	p := newPoliced(t, of)
	for address, passes := range map[string]bool{"10.43.11.183": true, "10.43.11.184": false, "10.43.0.0": true} {
		frame := from(otherMAC, guestMAC, ipFrame(address, "10.42.1.5", unix.IPPROTO_UDP, udpOf(1, 2, "x")))
		if p.in(t, frame) != passes {
			t.Errorf("%s: passes %t", address, !passes)
		}
	}
}

// The policies of a plan are there before its bridge and its tap are, and hold from then on.
func TestPoliciesHoldFromTheStart(t *testing.T) {
	nic := hostOf()
	nic.Guard = nil
	p := policedPod{newGuarded(t, nic, func(g *guarded) { policedPod{g}.police(t, policies()) })}
	for address, passes := range map[string]bool{"10.42.1.9": true, "10.42.1.10": false} {
		frame := from(otherMAC, guestMAC, ipFrame(address, "10.42.1.5", unix.IPPROTO_TCP, tcpOf(4000, 80, "S")))
		if p.in(t, frame) != passes {
			t.Errorf("%s: passes %t", address, !passes)
		}
	}
}

// The policies of a plan are there before its tap is.
func TestPoliciesComeFirst(t *testing.T) {
	pod := newNetns(t)
	plan := network.Plan{Interfaces: []network.Interface{hostOf()}}
	rules := multipolicy.Rules{"default": policies()}
	if err := Police(pod, plan, rules); err != nil {
		t.Fatal(err)
	}
	if got, err := Passed(pod, plan, rules); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if err := Police(pod, plan, nil); err != nil {
		t.Fatal(err)
	}
	if err := Police(pod, plan, nil); err != nil {
		t.Errorf("there is nothing to remove: %v", err)
	}
}

// What is made of policies, in the words of nft --debug=netlink.
func TestPolicyRules(t *testing.T) {
	got := textOf(policed("tap0", policies()))
	path := filepath.Join("testdata", "policies.nft")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%v; with -update it is\n%s", err, got)
	}
}

func textOf(r policyRules) string {
	var b strings.Builder
	for _, s := range r.sets {
		fmt.Fprintf(&b, "set %s %s\n", s.name, s.kind.Name)
		for _, k := range s.keys {
			fmt.Fprintf(&b, "  %x\n", k)
		}
	}
	for _, name := range r.counters {
		fmt.Fprintf(&b, "counter %s\n", name)
	}
	var steps []string
	for step := range r.chains {
		steps = append(steps, step)
	}
	slices.Sort(steps)
	for _, step := range steps {
		fmt.Fprintf(&b, "chain %s\n", r.chain(step))
		for _, rule := range r.chains[step] {
			var words []string
			for _, e := range rule {
				words = append(words, wordOf(e))
			}
			fmt.Fprintf(&b, "  %s\n", strings.Join(words, " "))
		}
	}
	return b.String()
}

func wordOf(e expr.Any) string {
	switch e := e.(type) {
	case *expr.Meta:
		return fmt.Sprintf("[meta %d => %d]", e.Key, e.Register)
	case *expr.Payload:
		return fmt.Sprintf("[payload %d@%d+%d => %d]", e.Len, e.Base, e.Offset, e.DestRegister)
	case *expr.Exthdr:
		return fmt.Sprintf("[exthdr %d@%d+%d => %d]", e.Len, e.Type, e.Offset, e.DestRegister)
	case *expr.Bitwise:
		return fmt.Sprintf("[and %x]", e.Mask)
	case *expr.Cmp:
		return fmt.Sprintf("[%s %x]", []string{"eq", "neq", "lt", "lte", "gt", "gte"}[e.Op], e.Data)
	case *expr.Immediate:
		return fmt.Sprintf("[immediate %x => %d]", e.Data, e.Register)
	case *expr.Lookup:
		return fmt.Sprintf("[lookup %d in %s]", e.SourceRegister, e.SetName)
	case *expr.Dynset:
		if e.Operation == deleteElement {
			return fmt.Sprintf("[delete %d from %s]", e.SrcRegKey, e.SetName)
		}
		return fmt.Sprintf("[update %s from %d for %s]", e.SetName, e.SrcRegKey, e.Timeout)
	case *expr.Objref:
		return fmt.Sprintf("[counter %s]", e.Name)
	case *expr.Verdict:
		names := map[expr.VerdictKind]string{
			expr.VerdictAccept: "accept", expr.VerdictDrop: "drop", expr.VerdictReturn: "return",
			expr.VerdictGoto: "goto " + e.Chain, expr.VerdictJump: "jump " + e.Chain,
		}
		return "[" + names[e.Kind] + "]"
	}
	return fmt.Sprintf("[%T]", e)
}
