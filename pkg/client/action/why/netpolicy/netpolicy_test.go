package netpolicy

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// parse reads specs of policies of the namespace web, named a, b, c.
func parse(t *testing.T, specs ...string) []networkingv1.NetworkPolicy {
	t.Helper()
	var out []networkingv1.NetworkPolicy
	for i, text := range specs {
		p := networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: string(rune('a' + i))},
		}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out = append(out, p)
	}
	return out
}

// launcher is the pod of a guest in namespace web, on node one.
func launcher() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "launcher", Labels: map[string]string{"app": "site"}},
		Spec: corev1.PodSpec{
			NodeName: "one",
			InitContainers: []corev1.Container{
				{Name: "once", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 1}}},
				{
					Name: "beside", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
					Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				},
			},
			Containers: []corev1.Container{{Name: "compute", Ports: []corev1.ContainerPort{
				{Name: "http", ContainerPort: 80}, {Name: "http", ContainerPort: 53, Protocol: corev1.ProtocolUDP},
			}}},
		},
		Status: corev1.PodStatus{HostIPs: []corev1.HostIP{{IP: "192.168.0.1"}, {IP: "fd01::1"}}},
	}
}

// client is a pod of a namespace on node two.
func client(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "client", Labels: map[string]string{"app": "browser", "tier": "front"},
		},
		Spec: corev1.PodSpec{NodeName: "two"},
	}
}

func peer(pod *corev1.Pod, address string) Peer {
	labels := map[string]string{corev1.LabelMetadataName: "", "team": "red"}
	if pod != nil {
		labels[corev1.LabelMetadataName] = pod.Namespace
	}
	return Peer{Pod: pod, Namespace: labels, Address: netip.MustParseAddr(address)}
}

// onHost puts a pod into the network of its node.
func onHost(pod *corev1.Pod, node string) *corev1.Pod {
	pod.Spec.HostNetwork, pod.Spec.NodeName = true, node
	return pod
}

// unlabelled is a peer whose namespace could not be read.
func unlabelled(p Peer) Peer {
	p.Namespace = nil
	return p
}

const udp = corev1.ProtocolUDP

func TestIngress(t *testing.T) {
	near, far := peer(client("web"), "10.0.2.2"), peer(client("shop"), "10.0.3.3")
	far6 := peer(client("shop"), "fd00::3")
	outside, outside6 := peer(nil, "203.0.113.7"), peer(nil, "2001:db8::7")
	for name, c := range map[string]struct {
		// policies are whole ones; from and ports are those of the one rule of one.
		policies    []string
		from, ports string
		source      Peer
		protocol    corev1.Protocol
		// allowed and possible are ports; possible is as allowed unless said.
		allowed, possible string
	}{
		"no policy": {source: far, allowed: "all"},
		"one that selects nothing": {
			policies: []string{"podSelector: {matchLabels: {app: other}}"},
			source:   far, allowed: "all",
		},
		"deny all": {
			policies: []string{"{podSelector: {}}"},
			source:   near, allowed: "none",
		},
		"deny all, said": {
			policies: []string{"{podSelector: {}, policyTypes: [Ingress]}"},
			source:   near, allowed: "none",
		},
		"deny all by label": {
			policies: []string{"podSelector: {matchLabels: {app: site}}"},
			source:   near, allowed: "none",
		},
		"deny all by expression": {
			policies: []string{"podSelector: {matchExpressions: [{key: app, operator: In, values: [site, x]}]}"},
			source:   near, allowed: "none",
		},
		"by expression, another": {
			policies: []string{"podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [site]}]}"},
			source:   near, allowed: "all",
		},
		"egress alone": {
			policies: []string{"{podSelector: {}, policyTypes: [Egress]}"},
			source:   near, allowed: "all",
		},
		"egress without types": {
			policies: []string{"{podSelector: {}, egress: [{}]}"},
			source:   near, allowed: "none",
		},
		"rule that is empty": {
			policies: []string{"{podSelector: {}, ingress: [{}]}"},
			source:   outside, allowed: "all",
		},
		"no rules": {
			policies: []string{"{podSelector: {}, ingress: []}"},
			source:   outside, allowed: "none",
		},
		"empty from": {
			policies: []string{"{podSelector: {}, ingress: [{from: [], ports: [{port: 80}]}]}"},
			source:   outside, allowed: "80",
		},
		"empty ports": {
			policies: []string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: []}]}"},
			source:   near, allowed: "all",
		},
		"pods of the namespace":     {from: "{podSelector: {}}", source: near, allowed: "all"},
		"pods of another namespace": {from: "{podSelector: {}}", source: far, allowed: "none"},
		"pods do not mean outside":  {from: "{podSelector: {}}", source: outside, allowed: "none"},
		"all namespaces":            {from: "{namespaceSelector: {}}", source: far, allowed: "all"},
		"all namespaces, outside": {
			from:   "{namespaceSelector: {}}",
			source: outside, allowed: "none",
		},
		"namespace by label": {
			from:   "{namespaceSelector: {matchLabels: {team: red}}}",
			source: far, allowed: "all",
		},
		"namespace by another label": {
			from:   "{namespaceSelector: {matchLabels: {team: blue}}}",
			source: far, allowed: "none",
		},
		"both selectors": {
			from:   "{namespaceSelector: {matchLabels: {team: red}}, podSelector: {matchLabels: {app: browser}}}",
			source: far, allowed: "all",
		},
		"both selectors, other pod": {
			from:   "{namespaceSelector: {matchLabels: {team: red}}, podSelector: {matchLabels: {app: x}}}",
			source: far, allowed: "none",
		},
		"two peers are either": {
			from:   "{namespaceSelector: {matchLabels: {team: red}}}, {podSelector: {matchLabels: {app: x}}}",
			source: far, allowed: "all",
		},
		"block": {
			from:   "{ipBlock: {cidr: 203.0.113.0/24}}",
			source: outside, allowed: "all",
		},
		"block with except": {
			from:   "{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.8/32, 203.0.113.0/29]}}",
			source: outside, allowed: "none",
		},
		"block with another except": {
			from:   "{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.8/29]}}",
			source: outside, allowed: "all",
		},
		"block of a pod": {
			from:   "{ipBlock: {cidr: 10.0.0.0/8}}",
			source: far, allowed: "all",
		},
		"block of all of IPv4": {
			from:   "{ipBlock: {cidr: 0.0.0.0/0}}",
			source: outside6, allowed: "none",
		},
		"block of IPv6": {
			from:   "{ipBlock: {cidr: '2001:db8::/32', except: ['2001:db8:1::/48']}}",
			source: outside6, allowed: "all",
		},
		"block of IPv6, except": {
			from:   "{ipBlock: {cidr: '::/0', except: ['2001:db8::/64']}}",
			source: outside6, allowed: "none",
		},
		"block of IPv6, IPv4": {
			from:   "{ipBlock: {cidr: '::/0'}}",
			source: outside, allowed: "none",
		},
		"block of IPv6, pod": {
			from:   "{ipBlock: {cidr: 'fd00::/8'}}",
			source: far6, allowed: "all",
		},
		"block that is none": {
			from:   "{ipBlock: {cidr: 010.0.0.0/8}}",
			source: far, allowed: "none",
		},
		"except that is none": {
			from:   "{ipBlock: {cidr: 10.0.0.0/8, except: [10.01.0.0/16]}}",
			source: far, allowed: "none",
		},
		"port":                   {ports: "{port: 80}, {port: 443}", source: far, allowed: "80,443"},
		"port of TCP, asked UDP": {ports: "{port: 80}", source: far, protocol: udp, allowed: "none"},
		"port of UDP": {
			ports:  "{port: 53, protocol: UDP}",
			source: far, protocol: udp, allowed: "53",
		},
		"port of UDP, asked TCP": {ports: "{port: 53, protocol: UDP}", source: far, allowed: "none"},
		"protocol alone": {
			ports:  "{protocol: UDP}",
			source: far, protocol: udp, allowed: "all",
		},
		"protocol alone, asked TCP": {ports: "{protocol: UDP}", source: far, allowed: "none"},
		"SCTP": {
			ports:  "{protocol: SCTP, port: 80}",
			source: far, allowed: "none",
		},
		"range": {
			ports:  "{port: 8000, endPort: 8080}",
			source: far, allowed: "8000-8080",
		},
		"range of UDP": {
			ports:  "{port: 1, endPort: 65535, protocol: UDP}",
			source: far, protocol: udp, allowed: "all",
		},
		"named": {ports: "{port: http}", source: far, allowed: "80,8080"},
		"named, UDP": {
			ports:  "{port: http, protocol: UDP}",
			source: far, protocol: udp, allowed: "53",
		},
		"named as nothing": {ports: "{port: https}", source: far, allowed: "none"},
		"policies add up": {
			policies: []string{
				"{podSelector: {}}",
				"{podSelector: {}, ingress: [{ports: [{port: 80}]}]}",
				"{podSelector: {}, ingress: [{ports: [{port: 22}]}]}",
			},
			source: far, allowed: "22,80",
		},
		"rules add up": {
			policies: []string{
				"{podSelector: {}, ingress: [{ports: [{port: 80}]}, {from: [{podSelector: {}}]}, {ports: " +
					"[{port: 81}]}]}",
			},
			source: far, allowed: "80-81",
		},
		"unread, all namespaces": {
			from:   "{namespaceSelector: {}}",
			source: unlabelled(far), allowed: "all",
		},
		"unread, by name": {
			from:   "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}",
			source: unlabelled(far), allowed: "all",
		},
		"unread, by another name": {
			from:   "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: x, team: red}}}",
			source: unlabelled(far), allowed: "none",
		},
		"unread, by label": {
			policies: []string{
				"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: red}}}], ports: " +
					"[{port: 80}]}]}",
			},
			source: unlabelled(far), allowed: "none", possible: "80",
		},
		"unread, no label": {
			from:   "{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}",
			source: unlabelled(far), allowed: "none", possible: "all",
		},
		"unread, other pod": {
			from:   "{namespaceSelector: {matchLabels: {team: red}}, podSelector: {matchLabels: {app: x}}}",
			source: unlabelled(far), allowed: "none",
		},
		"unread, another rule": {
			from:   "{namespaceSelector: {matchLabels: {team: red}}}]}, {ports: [{port: 80}",
			source: unlabelled(far), allowed: "80", possible: "all",
		},
		"its own node": {
			policies: []string{"{podSelector: {}}"},
			source:   peer(nil, "192.168.0.1"), allowed: "all",
		},
		"its own node by IPv6": {
			policies: []string{"{podSelector: {}}"},
			source:   peer(nil, "fd01::1"), allowed: "all",
		},
		"another node": {
			policies: []string{"{podSelector: {}}"},
			source:   peer(nil, "192.168.0.2"), allowed: "none",
		},
		"host network, its node": {
			policies: []string{"{podSelector: {}}"},
			source:   peer(onHost(client("web"), "one"), "192.168.0.1"), allowed: "all",
		},
		"host network, another": {
			from:   "{podSelector: {}}, {namespaceSelector: {}}",
			source: peer(onHost(client("web"), "two"), "192.168.0.2"), allowed: "none",
		},
		"host network, another block": {
			from:   "{ipBlock: {cidr: 192.168.0.0/24}}",
			source: peer(onHost(client("web"), "two"), "192.168.0.2"), allowed: "all",
		},
		"same node, own network": {
			policies: []string{"{podSelector: {}}"}, allowed: "none",
			source: func() Peer { p := client("web"); p.Spec.NodeName = "one"; return peer(p, "10.0.2.2") }(),
		},
		"itself": {
			policies: []string{"{podSelector: {}}"},
			source:   peer(launcher(), "10.0.2.9"), allowed: "all",
		},
	} {
		t.Run(name, func(t *testing.T) {
			protocol := c.protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			possible := c.possible
			if possible == "" {
				possible = c.allowed
			}
			if c.from != "" {
				c.policies = append(c.policies, "{podSelector: {}, ingress: [{from: ["+c.from+"]}]}")
			}
			if c.ports != "" {
				c.policies = append(c.policies, "{podSelector: {}, ingress: [{ports: ["+c.ports+"]}]}")
			}
			r := Ingress(parse(t, c.policies...), peer(launcher(), "10.0.2.9"), c.source, protocol)
			if r.Allowed.String() != c.allowed || r.Possible.String() != possible {
				t.Errorf("allowed %s, possible %s, want %s and %s", r.Allowed, r.Possible, c.allowed, possible)
			}
			if invalid := strings.HasSuffix(name, "that is none"); invalid != (len(r.Invalid) > 0) {
				t.Errorf("invalid: %q", r.Invalid)
			}
		})
	}
}
