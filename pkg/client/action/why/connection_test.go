package why

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestConnections(t *testing.T) {
	const (
		everything = "IPv4 all,IPv6 all"
		through    = "IPv4 80,IPv6 80"
		nothing    = "IPv4 none,IPv6 none"
	)
	seen := map[string]bool{}
	for name, c := range map[string]struct {
		change  situationOf
		verdict State
		// reasons are those of the causes, paths the ports of each family.
		reasons, paths string
		// says are parts of the first cause's message and first fix.
		message, fix string
	}{
		"nothing": {both(), OK, "", through, "", ""},
		"all":     {allPorts, OK, "", everything, "", ""},
		"denied": {
			policy("default", "deny", denyAll), Broken, "IngressDenied", nothing,
			"no rule of networkpolicy/deny in namespace default, which selects the guest's pod, allows TCP port 80 " +
				"from pod shop/client",
			`kubectl patch networkpolicy deny -n default --type json -p '` +
				`[{"op":"add","path":"/spec/ingress","value":[` +
				`{"ports":[{"protocol":"TCP","port":80}],"from":[{"podSelector":{"matchLabels":{"app":"till"}},` +
				`"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"shop"}}}]}]}]'`,
		},
		"denied, all ports": {
			both(allPorts, policy("default", "deny", denyAll)), Broken, "IngressDenied", nothing,
			"allows any TCP port from", `"ports":[{"protocol":"TCP"}]`,
		},
		"two policies": {
			both(policy("default", "b", denyAll), policy("default", "a",
				"{podSelector: {}, ingress: [{ports: [{port: 22}]}]}")),
			Broken, "IngressDenied", nothing,
			"the rules of networkpolicy/a, networkpolicy/b in namespace default, which select the guest's pod, allow " +
				"of TCP from pod shop/client these ports alone: 22", `"path":"/spec/ingress/-","value":{"ports"`,
		},
		"one allows": {
			both(policy("default", "deny", denyAll), policy("default", "web",
				"{podSelector: {}, ingress: [{ports: [{port: 80}]}]}")),
			OK, "", through, "", "",
		},
		"some of all ports": {
			both(allPorts, policy("default", "web",
				"{podSelector: {}, ingress: [{ports: [{port: 80}, {port: 22}]}]}")),
			OK, "IngressDenied", "IPv4 22,80,IPv6 22,80", "these ports alone: 22,80",
			"kubectl describe networkpolicy web -n default",
		},
		"one family": {
			policy("default", "four", "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}"),
			OK, "IngressDenied", "IPv4 80,IPv6 none", "from pod shop/client by IPv6",
			"kubectl describe networkpolicy four",
		},
		"egress": {
			policy("shop", "closed", denyEgress), Broken, "EgressDenied", nothing,
			"no rule of networkpolicy/closed in namespace shop, which selects pod shop/client, allows TCP port 80 to " +
				"the guest's pod",
			`"path":"/spec/egress","value":[{"ports":[{"protocol":"TCP","port":80}],"to":[{"podSelector":` +
				`{"matchLabels":{"vm.kubevirt.io/name":"demo"}},"namespaceSelector":{"matchLabels":` +
				`{"kubernetes.io/metadata.name":"default"}}}]}]`,
		},
		"both directions": {
			both(policy("shop", "out", denyEgress), policy("default", "in", denyAll)), Broken,
			"IngressDenied EgressDenied", nothing, "networkpolicy/in", "networkpolicy in ",
		},
		"directions without a port in common": {
			both(allPorts, policy("shop", "out", "{podSelector: {}, egress: [{ports: [{port: 1}]}]}"),
				policy("default", "in", "{podSelector: {}, ingress: [{ports: [{port: 2}]}]}")), Broken,
			"IngressDenied EgressDenied", nothing, "alone: 2", "networkpolicy in ",
		},
		"outside": {
			both(from("203.0.113.7"), policy("default", "deny", denyAll)), Broken, "IngressDenied", "IPv4 none",
			"from 203.0.113.7", `"from":[{"ipBlock":{"cidr":"203.0.113.7/32"}}]`,
		},
		"outside, egress of the guest's namespace": {
			both(from("203.0.113.7"), policy("default", "out", denyEgress)), OK, "", "IPv4 80", "", "",
		},
		"source without labels": {
			both(policy("default", "deny", denyAll), func(f *ConnectionFacts) { f.Source.Pod.Labels = nil }),
			Broken,
			"IngressDenied", nothing, "", "a label for pod shop/client",
		},
		"own namespace": {
			both(func(f *ConnectionFacts) { f.Source.Pod.Namespace = "default" }, policy("default", "deny",
				denyAll)), Broken,
			"IngressDenied", nothing, "", `"from":[{"podSelector":{"matchLabels":{"app":"till"}}}]`,
		},
		"policies unread": {
			unread("default"), Unknown, "PoliciesUnreadable", nothing,
			"you may not read the NetworkPolicies of namespace default", "ask an administrator",
		},
		"both unread, one namespace": {
			both(func(f *ConnectionFacts) { f.Source.Pod.Namespace = "default" }, unread("default")), Unknown,
			"PoliciesUnreadable", nothing, "", "",
		},
		"unread, but denied": {
			both(unread("shop"), policy("default", "deny", denyAll)), Broken, "IngressDenied PoliciesUnreadable",
			nothing, "networkpolicy/deny", "kubectl patch",
		},
		"namespace unread": {
			both(unreadNamespace("shop"),
				policy("default", "red",
					"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: red}}}]}]}")),
			Unknown, "NamespaceUnreadable", nothing,
			"the labels of namespace shop, which you may not read, decide whether networkpolicy/red in namespace " +
				"default allow TCP port 80 from pod shop/client", "read namespace shop",
		},
		"namespace unread, and no matter": {
			both(unreadNamespace("shop"), policy("default", "deny", denyAll)), Broken, "IngressDenied", nothing,
			"", "",
		},
		"ports listed": {ports(22, 80), OK, "", through, "", ""},
		"port not listed": {
			ports(22), Broken, "PortNotListed", nothing, `"default" lists ports, of TCP these alone: 22`,
			"add {port: 80, protocol: TCP} to ports",
		},
		"other protocol": {
			both(ports(80), asUDP), Broken, "PortNotListed", nothing, "of UDP these alone: none", "protocol: UDP",
		},
		"some ports": {
			both(ports(22, 80), allPorts), OK, "PortNotListed", "IPv4 22,80,IPv6 22,80", "these alone: 22,80",
			"leave out ports",
		},
		"listed, policies": {
			both(ports(22, 80), allPorts, policy("default", "in",
				"{podSelector: {}, ingress: [{ports: [{port: 443}]}]}")), Broken, "PortNotListed IngressDenied",
			nothing, "", "",
		},
		"port of the pod": {
			both(ports(22), func(f *ConnectionFacts) {
				f.Pods[0].Spec.Containers = append(f.Pods[0].Spec.Containers,
					corev1.Container{Name: "proxy", Ports: []corev1.ContainerPort{{ContainerPort: 80}}})
			}), Broken, "PortOfPod", nothing, "container proxy of the guest's pod has TCP port 80", "add {port: 80",
		},
		"stopped": {
			of(stopped(v1.RunStrategyHalted)), Broken, "GuestNotRunning", "", "the guest does not run: ",
			"virtctl start demo -n default",
		},
		"starting": {
			of(phase(v1.Scheduling, 0)), Waiting, "GuestNotRunning", "", "the guest does not run",
			"virtctl why demo",
		},
		"paused": {
			of(condition(v1.VirtualMachineInstancePaused, corev1.ConditionTrue, "PausedByUser", "it was paused")),
			Broken,
			"GuestPaused", through, "the guest is paused", "virtctl unpause demo -n default",
		},
		"not ready": {
			of(condition(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, "x", "the probe fails")), OK,
			"GuestNotReady",
			through, "Services send it nothing", "virtctl why demo",
		},
		"node lost": {
			of(func(f *Facts) { f.Nodes = f.Nodes[1:] }), Broken, "NodeGone", through, "", "",
		},
		"no pod network": {
			func(f *ConnectionFacts) {
				f.VMI.Spec.Networks = []v1.Network{{
					Name:          "red",
					NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{}},
				}}
			}, Broken, "NoPodNetwork", "", "it is on Multus' networks red", "masquerade",
		},
		"no pod network, from outside": {
			both(onRed(""), noPodNetwork, from("192.0.2.7")), Unknown, "NoPodNetwork", "",
			"nobody knows whether 192.0.2.7 is on one of these", "",
		},
		"no interface": {
			func(f *ConnectionFacts) {
				f.VMI.Spec.Networks, f.VMI.Spec.Domain.Devices.Interfaces = nil, nil
				f.VMI.Spec.Domain.Devices.AutoattachPodInterface = new(false)
			}, Broken, "NoPodNetwork", "", "the guest is not on the pod network, on which", "",
		},
		"Multus' default network": {
			func(f *ConnectionFacts) {
				f.VMI.Spec.Networks[0].NetworkSource = v1.NetworkSource{Multus: &v1.MultusNetwork{Default: true}}
			}, OK, "", through, "", "",
		},
		"second network": {
			both(onRed("192.0.2.2"), allPorts), OK, "", everything + ",red IPv4 all", "", "",
		},
		"second network, no addresses": {onRed(""), OK, "", through + ",red IP 80", "", ""},
		"second network, denied": {
			both(onRed("192.0.2.2"), multi("default", "in", "default/red", denyAll)), OK, "NetworkIngressDenied",
			through + ",red IPv4 none",
			"on network red no rule of multinetworkpolicy/in in namespace default, which selects the guest's pod, " +
				"allows TCP port 80 from pod shop/client", "kubectl describe multi-networkpolicy in -n default",
		},
		"second network, of another": {
			both(onRed("192.0.2.2"), multi("default", "in", "blue", denyAll)), OK, "", through + ",red IPv4 80", "", "",
		},
		"second network, allowed": {
			both(onRed("192.0.2.2"), multi("default", "in", "red", denyAll), multi("default", "web", "red",
				"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/30}}], ports: [{port: 80}]}]}")),
			OK, "", through + ",red IPv4 80", "", "",
		},
		"second network, some ports": {
			both(onRed("192.0.2.2"), allPorts, multi("default", "in", "red",
				"{podSelector: {}, ingress: [{ports: [{port: 22}]}]}")),
			OK, "NetworkIngressDenied", everything + ",red IPv4 22",
			"on network red the rules of multinetworkpolicy/in in namespace default, which selects the guest's pod, " +
				"allow of TCP from pod shop/client these ports alone: 22", "",
		},
		"second network alone, denied": {
			both(onRed("192.0.2.2"), noPodNetwork,
				multi("default", "in", "red", "{podSelector: {}, policyTypes: [x]}")),
			Broken, "NoPodNetwork NetworkIngressDenied", "red IPv4 none", "", "",
		},
		"second network alone": {
			both(onRed("192.0.2.2"), noPodNetwork), OK, "NoPodNetwork", "red IPv4 80", "", "",
		},
		"second network, egress of a pod": {
			both(onRed("192.0.2.2"), multi("shop", "out", "default/red", denyEgress)), OK, "", through + ",red IPv4 80",
			"", "",
		},
		"second network, egress of a guest": {
			both(onRed("192.0.2.2"), asGuest, multi("shop", "out", "default/red", denyEgress)), OK,
			"NetworkEgressDenied", through + ",red IPv4 none",
			"which selects pod shop/client, allows TCP port 80 to the guest's pod", "-n shop",
		},
		"second network, wrong policy": {
			both(onRed("192.0.2.2"), multi("default", "odd", "red",
				"{podSelector: {matchExpressions: [{key: a, operator: x}]}, ingress: [{}]}")),
			OK, "NetworkIngressDenied", through + ",red IPv4 none", "multinetworkpolicy/odd", "",
		},
		"second network, policies not written": {
			both(onRed("192.0.2.2"), noPodNetwork, func(f *ConnectionFacts) { f.VMI.Annotations = nil }),
			Unknown, "NoPodNetwork PoliciesUnreadable", "red IPv4 none", "", "",
		},
		"second network, source unread": {
			both(onRed("192.0.2.2"), noPodNetwork, asGuest, func(f *ConnectionFacts) { f.SourceVMI = nil }),
			Unknown, "NoPodNetwork PoliciesUnreadable", "red IPv4 none", "", "",
		},
		"second network, source gone": {
			both(onRed("192.0.2.2"), asGuest, func(f *ConnectionFacts) { f.SourceVMI, f.SourceGone = nil, true }),
			Broken, "SourceEnded", through + ",red IPv4 80", "its instance vmi/till has been deleted",
			"kubectl describe pod/client -n shop",
		},
		"second network open, first denied": {
			both(onRed("192.0.2.2"), policy("default", "deny", denyAll)), OK, "IngressDenied",
			"IPv4 none,IPv6 none,red IPv4 80", "no rule of networkpolicy/deny", "kubectl patch networkpolicy deny",
		},
		"second network open, first's cable": {
			both(onRed("192.0.2.2"), func(f *ConnectionFacts) { f.VMI.Status.Interfaces[0].LinkState = "down" }), OK,
			"LinkDown", "IPv4 none,IPv6 none,red IPv4 80", "", "",
		},
		"second network alone, cable": {
			both(onRed("192.0.2.2"), noPodNetwork, unplugged), Broken, "NoPodNetwork LinkDown", "red IPv4 none", "", "",
		},
		"second network, block, no address of the other end": {
			both(onRed(""), noPodNetwork, multi("default", "in", "red",
				"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/30}}]}]}")),
			Unknown, "NoPodNetwork PeerNotKnown", "red IP none", "", "",
		},
		"second network, block, no address of the guest": {
			both(onRed("192.0.2.2"), noPodNetwork, unnumbered, multi("default", "in", "red",
				"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/30}}]}]}")),
			OK, "NoPodNetwork", "red IP 80", "", "",
		},
		"second network, selector of a guest": {
			both(onRed(""), noPodNetwork, asGuest, multi("default", "in", "red",
				"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, "+
					"podSelector: {matchLabels: {app: till}}}]}]}")),
			OK, "NoPodNetwork", "red IP 80", "", "",
		},
		"second network, selector of a pod that says nothing": {
			both(onRed(""), noPodNetwork, multi("default", "in", "red",
				"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, "+
					"podSelector: {matchLabels: {app: till}}}]}]}")),
			Broken, "NoPodNetwork NetworkIngressDenied", "red IP none", "", "",
		},
		"second network, about to be left": {
			both(onRed("192.0.2.2"), noPodNetwork, elsewhere), OK, "NoPodNetwork", "red IPv4 80", "", "",
		},
		"cable": {
			func(f *ConnectionFacts) { f.VMI.Status.Interfaces[0].LinkState = "down" }, Broken, "LinkDown",
			"IPv4 none,IPv6 none", `the cable of the guest's interface "default" is pulled`,
			`kubectl patch vm/demo -n default --type json -p '[{"op":"add","path":` +
				`"/spec/template/spec/domain/devices/interfaces/0/state","value":"up"}]'`,
		},
		"cable, before its status": {
			both(nic(func(n *v1.Interface) { n.State = v1.InterfaceStateLinkDown }),
				func(f *ConnectionFacts) { f.VMI.Status.Interfaces = nil }), Broken, "LinkDown", "IPv4 none,IPv6 none",
			"", "",
		},
		"bridge":             {bridged("10.0.1.1", "fd00:1::1", "fe80::1"), OK, "", through, "", ""},
		"bridge, one family": {bridged("10.0.1.1"), OK, "", "IPv4 80", "", ""},
		"bridge, no address": {
			bridged(), Broken, "NoGuestAddress", "", "has no address", "virtctl describe demo",
		},
		"bridge, another address": {
			bridged("10.9.9.9"), Broken, "OtherAddress", "",
			"has the address 10.9.9.9, and others look for it at its pod's, 10.0.1.1, fd00:1::1", "DHCP",
		},
		"families": {
			func(f *ConnectionFacts) {
				f.Pods[0].Status.PodIP, f.Pods[0].Status.PodIPs = "fd00:1::1", ips("fd00:1::1")
			}, OK, "",
			"IPv6 80", "", "",
		},
		"no family in common": {
			both(from("2001:db8::1"), func(f *ConnectionFacts) { f.Pods[0].Status.PodIPs = ips("10.0.1.1") }),
			Broken,
			"NoCommonFamily", "", "2001:db8::1 has IPv6 alone, and the guest IPv4 alone", "IPv4 address",
		},
		"source ended": {
			func(f *ConnectionFacts) { f.Source.Pod.Status.Phase = corev1.PodSucceeded }, Broken, "SourceEnded",
			through, "pod shop/client has ended: it is succeeded", "kubectl describe pod/client -n shop",
		},
		"source pending": {
			func(f *ConnectionFacts) { f.Source.Pod.Status = corev1.PodStatus{Phase: corev1.PodPending} }, Waiting,
			"SourceNotRunning", "", "it is pending", "",
		},
		"source without address": {
			func(f *ConnectionFacts) { f.Source.Pod.Status = corev1.PodStatus{Phase: corev1.PodRunning} }, Waiting,
			"SourceNoAddress", "", "", "",
		},
		"pod without address": {
			func(f *ConnectionFacts) { f.Pods[0].Status.PodIP, f.Pods[0].Status.PodIPs = "", nil }, Waiting,
			"PodNoAddress", "", "", "",
		},
		"no pod": {func(f *ConnectionFacts) { f.Pods = nil }, Waiting, "NoPod", "", "", ""},
		"pods unread": {
			func(f *ConnectionFacts) { f.Pods, f.Unreadable = nil, []string{"pods"} }, Unknown, "PodsUnreadable",
			"",
			"you may not read the pods of namespace default", "ask an administrator",
		},
	} {
		for _, reason := range strings.Fields(c.reasons) {
			seen[reason] = true
		}
		t.Run(name, func(t *testing.T) {
			f := connected()
			c.change(&f)
			r := ExplainConnection(f).Connection
			var reasons, paths []string
			for _, cause := range r.Causes {
				reasons = append(reasons, cause.Reason)
			}
			for _, p := range r.Paths {
				paths = append(paths, strings.TrimSpace(p.Network+" "+p.Family+" "+p.Ports))
			}
			if got := strings.Join(reasons, " "); got != c.reasons || r.Verdict != c.verdict {
				t.Errorf("%s because of %q, want %s because of %q: %s", r.Verdict, got, c.verdict, c.reasons,
					r.Summary)
			}
			if got := strings.Join(paths, ","); got != c.paths {
				t.Errorf("paths are %q, want %q", got, c.paths)
			}
			if len(r.Causes) == 0 {
				return
			}
			if first := r.Causes[0]; !strings.Contains(first.Message, c.message) ||
				c.fix != "" && !strings.Contains(strings.Join(first.Fixes[:1], ""), c.fix) {
				t.Errorf("%s; fix %q, want %q and %q", first.Message, first.Fixes, c.message, c.fix)
			}
		})
	}
	inTheTable(t, seen)
}

// inTheTable holds the table of reasons in docs/why.md against those that situations have.
func inTheTable(t *testing.T, seen map[string]bool) {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/why.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, found := strings.Cut(string(text), "\n## What drops a connection\n")
	if !found {
		t.Fatal("docs/why.md has no chapter about connections")
	}
	for reason := range seen {
		if !strings.Contains(chapter, "`"+reason+"`") {
			t.Errorf("docs/why.md does not have the reason %s", reason)
		}
	}
	for row := range strings.SplitSeq(chapter, "\n") {
		if !strings.HasPrefix(row, "| `") {
			continue
		}
		for _, word := range regexp.MustCompile("`([A-Z][a-zA-Z]+)`").FindAllStringSubmatch(row, -1) {
			if !seen[word[1]] && !slices.Contains(nodeTrouble, word[1]) {
				t.Errorf("docs/why.md has the reason %s, of which there is no situation", word[1])
			}
		}
	}
}

func TestConnectionSummary(t *testing.T) {
	for want, change := range map[string]situationOf{
		"nothing known drops TCP connections from pod shop/client to port 80": both(),
		"nothing known drops UDP connections from 203.0.113.7": both(from("203.0.113.7"), asUDP,
			allPorts),
		"nothing known drops TCP connections from pod shop/client to the ports 22; those to other ports are " +
			"dropped": both(allPorts, ports(22)),
		"TCP connections from pod shop/client to port 80 are dropped: the guest is paused, and answers nothing": of(
			condition(v1.VirtualMachineInstancePaused, corev1.ConditionTrue, "PausedByUser", "it was paused")),
		"TCP connections from pod shop/client to port 80 do not get through yet: the guest's pod is not there": func(
			f *ConnectionFacts,
		) {
			f.Pods = nil
		},
		"TCP connections from pod shop/client to port 80 may be dropped: you may not read the NetworkPolicies of " +
			"namespace shop, any of which may drop them": unread("shop"),
	} {
		f := connected()
		change(&f)
		if r := ExplainConnection(f); r.Connection.Summary != want {
			t.Errorf("%q, want %q", r.Connection.Summary, want)
		}
	}
}

func TestConnectionNotes(t *testing.T) {
	second := func(f *ConnectionFacts) {
		f.VMI.Spec.Networks = append(f.VMI.Spec.Networks,
			v1.Network{Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{}}})
	}
	onHost := func(node string) situationOf {
		return func(f *ConnectionFacts) { f.Source.Pod.Spec.HostNetwork, f.Source.Pod.Spec.NodeName = true, node }
	}
	const unlooked = "only the pod network was looked at, not red, where MultiNetworkPolicies may hold"
	for name, c := range map[string]struct {
		change situationOf
		want   []string
	}{
		"nothing":        {both(), nil},
		"second network": {second, nil},
		"second network, both there": {both(second, func(f *ConnectionFacts) {
			f.Source.Pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "red"}
		}), []string{unlooked}},
		"second network, outside": {both(second, from("203.0.113.7")), []string{unlooked}},
		"its own node": {
			both(onHost("one"), policy("default", "deny", denyAll)),
			[]string{"no NetworkPolicy for ingress holds: a pod is always reached from its own node"},
		},
		"host network": {
			both(onHost("two"), policy("shop", "deny", denyEgress)),
			[]string{"no NetworkPolicy for egress holds: the source is in the network of its node"},
		},
		"no meaning": {
			policy("default", "odd", "{podSelector: {}, ingress: [{}, {from: [{ipBlock: {cidr: 010.0.0.0/8}}]}]}"),
			[]string{`networkpolicy/odd in namespace default, spec.ingress[1]: ipBlock: ` +
				`netip.ParsePrefix("010.0.0.0/8"): ParseAddr("010.0.0.0"): IPv4 field has octet with leading zero`},
		},
	} {
		f := connected()
		c.change(&f)
		if r := ExplainConnection(f).Connection; !slices.Equal(r.Notes, c.want) || r.Verdict != OK {
			t.Errorf("%s: %s, notes %q, want %q", name, r.Summary, r.Notes, c.want)
		}
	}
}

// A VM that is not there has no connection; the report says that it is not there.
func TestConnectionOfNobody(t *testing.T) {
	f := connected()
	f.VM, f.VMI = nil, nil
	if r := ExplainConnection(f); r.Connection != nil || r.Causes[0].Reason != "NotFound" {
		t.Errorf("%+v", r)
	}
}
