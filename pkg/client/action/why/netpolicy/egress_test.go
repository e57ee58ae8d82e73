package netpolicy

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A policy of another namespace holds for no pod of this one, whatever it selects.
func TestOtherNamespace(t *testing.T) {
	policies := parse(t, "{podSelector: {}}")
	policies[0].Namespace = "shop"
	r := Ingress(policies, peer(launcher(), "10.0.2.9"), peer(client("shop"), "10.0.3.3"), corev1.ProtocolTCP)
	if r.Allowed.String() != "all" || len(r.Selecting) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestSelecting(t *testing.T) {
	policies := parse(t, "{podSelector: {}}", "{podSelector: {matchLabels: {app: other}}}", "{podSelector: {}}",
		"{podSelector: {matchLabels: {app: '-'}}}")
	slices.Reverse(policies)
	r := Ingress(policies, peer(launcher(), "10.0.2.9"), peer(client("web"), "10.0.2.2"), corev1.ProtocolTCP)
	if !slices.Equal(r.Selecting, []string{"a", "c"}) {
		t.Errorf("selecting are %q", r.Selecting)
	}
	if len(r.Invalid) != 1 || !strings.HasPrefix(r.Invalid[0], "networkpolicy/d in namespace web, spec.podSelector: ") {
		t.Errorf("invalid are %q", r.Invalid)
	}
}

func TestEgress(t *testing.T) {
	target := peer(launcher(), "10.0.2.9")
	for name, c := range map[string]struct {
		policy  string
		source  Peer
		allowed string
	}{
		"ingress alone": {"{podSelector: {}}", peer(client("web"), "10.0.2.2"), "all"},
		"deny all": {
			"{podSelector: {}, policyTypes: [Egress]}",
			peer(client("web"), "10.0.2.2"), "none",
		},
		"both types": {
			"{podSelector: {}, policyTypes: [Ingress, Egress]}",
			peer(client("web"), "10.0.2.2"), "none",
		},
		"by a rule alone": {
			"{podSelector: {}, egress: [{ports: [{port: 53, protocol: UDP}]}]}",
			peer(client("web"), "10.0.2.2"), "none",
		},
		"another pod": {
			"{podSelector: {matchLabels: {app: site}}, policyTypes: [Egress]}",
			peer(client("web"), "10.0.2.2"), "all",
		},
		"another namespace": {
			"{podSelector: {}, policyTypes: [Egress]}",
			peer(client("shop"), "10.0.3.3"), "all",
		},
		"to the pod": {
			"{podSelector: {}, egress: [{to: [{podSelector: {matchLabels: {app: site}}}]}]}",
			peer(client("web"), "10.0.2.2"), "all",
		},
		"to the address": {
			"{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.2.9/32}}], ports: [{port: 80}]}]}",
			peer(client("web"), "10.0.2.2"), "80",
		},
		"not to the source": {
			"{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.2.2/32}}]}]}",
			peer(client("web"), "10.0.2.2"), "none",
		},
		"the target's names": {
			"{podSelector: {}, egress: [{ports: [{port: http}]}]}",
			peer(client("web"), "10.0.2.2"), "80,8080",
		},
		"host network": {
			"{podSelector: {}, policyTypes: [Egress]}",
			peer(onHost(client("web"), "two"), "192.168.0.2"), "all",
		},
		"outside": {
			"{podSelector: {}, policyTypes: [Egress]}",
			peer(nil, "203.0.113.7"), "all",
		},
		"itself": {"{podSelector: {}, policyTypes: [Egress]}", target, "all"},
		"unread namespace": {
			"{podSelector: {}, egress: [{to: [{namespaceSelector: {matchLabels: {team: red}}}]}]}",
			peer(client("web"), "10.0.2.2"), "all",
		},
		"of another's labels": {
			"{podSelector: {}, egress: [{to: [{podSelector: {matchLabels: {app: browser}}}]}]}",
			peer(client("web"), "10.0.2.2"), "none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Egress(parse(t, c.policy), c.source, target, corev1.ProtocolTCP)
			if r.Allowed.String() != c.allowed || r.Possible.String() != c.allowed {
				t.Errorf("allowed %s, possible %s, want %s", r.Allowed, r.Possible, c.allowed)
			}
		})
	}
}
