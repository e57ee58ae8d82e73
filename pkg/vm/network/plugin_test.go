package network

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestPlugins: what network binding plugins make of an interface.
func TestPlugins(t *testing.T) {
	var plugins Plugins
	err := yaml.UnmarshalStrict([]byte(`
l2: {domainAttachmentType: managedTap}
moves: {domainAttachmentType: managedTap, migration: {}, computeResourceOverhead: {requests: {memory: 3Mi}}}
asks: {domainAttachmentType: managedTap, migration: {}, networkAttachmentDefinition: cni/asks}
made: {domainAttachmentType: tap, migration: {}}
sidecar: {sidecarImage: x}
`), &plugins)
	if err != nil {
		t.Fatal(err)
	}
	spec := func(network, plugin string) string {
		return `{domain: {devices: {interfaces: [{name: red, binding: {name: ` + plugin +
			`}}]}}, networks: [{name: red, ` + network + `}]}`
	}
	tap := func(name string) Pod {
		pod := multusPod()
		for i := range pod.Links {
			pod.Links[i].Tap = pod.Links[i].Name == name
		}
		if name == "tapb1f51a511f1" {
			pod.Links = append(pod.Links, Link{Name: name, Tap: true})
		}
		return pod
	}
	const pod, red = "pod: {}", "multus: {networkName: red}"
	for name, tc := range map[string]struct {
		network, plugin string
		pod             Pod
		want            Interface // what is looked at of it
		err             string
	}{
		"on the pod network": {
			pod, "l2", flannelPod(),
			Interface{Binding: Bridge, BridgeLink: "k6t-eth0", Tap: "tap0", MAC: "0a:58:0a:2a:01:05", Stays: true},
			"",
		},
		"which can migrate": {
			pod, "moves", flannelPod(),
			Interface{Binding: Bridge, BridgeLink: "k6t-eth0", Tap: "tap0", MAC: "0a:58:0a:2a:01:05"},
			"",
		},
		"with a network": {
			pod, "asks", flannelPod(),
			Interface{Binding: Bridge, BridgeLink: "k6t-eth0", Tap: "tap0", MAC: "0a:58:0a:2a:01:05"},
			"",
		},
		"on another network": {
			red, "l2", multusPod(),
			Interface{Binding: Bridge, BridgeLink: "k6t-b1f51a511f1", Tap: "tapb1f51a511f1", MAC: "5a:00:00:00:00:01"},
			"",
		},
		"a tap": {
			red, "made", tap("podb1f51a511f1"),
			Interface{Binding: Tap, Tap: "podb1f51a511f1", MAC: "5a:00:00:00:00:01"},
			"",
		},
		"a tap of KubeVirt's": {
			red, "made", tap("tapb1f51a511f1"),
			Interface{Binding: Tap, Tap: "tapb1f51a511f1", MAC: "5a:00:00:00:00:01"},
			"",
		},
		"no tap": {
			red, "made", multusPod(),
			Interface{},
			`binding plugin "made": the CNI plugin has made no tap in the pod: neither tapb1f51a511f1 nor podb1f51a511f1 is one`,
		},
		"taken away meanwhile": {
			red, "gone", multusPod(),
			Interface{},
			`binding.name "gone" is not among the network binding plugins of this installation (asks, l2, made, moves, sidecar)`,
		},
		"a sidecar's from once": {
			red, "sidecar", multusPod(),
			Interface{},
			`binding plugin "sidecar" has no domainAttachmentType that virtkit can do`,
		},
	} {
		tc.pod.Plugins = plugins
		plan, err := NewPlan(vmiOf(t, spec(tc.network, tc.plugin)), tc.pod)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, want := plan.Interfaces[0], tc.want
		if got.Binding != want.Binding || got.BridgeLink != want.BridgeLink || got.Tap != want.Tap ||
			got.MAC != want.MAC || got.Stays != want.Stays || got.Guest.IsValid() {
			t.Errorf("%s: %+v", name, got)
		}
	}

	vmi := vmiOf(t,
		`{domain: {devices: {interfaces: [{name: a, binding: {name: asks}}, {name: b, binding: {name: moves}}, {name: c, binding: {name: moves}}]}}, networks: [{name: a, pod: {}}, {name: b, multus: {networkName: x}}, {name: c, multus: {networkName: x}}]}`)
	asked := Annotations(vmi, plugins, nil)[AnnotationNetworks]
	if !strings.HasSuffix(asked, `{"name":"asks","namespace":"cni","cni-args":{"logicNetworkName":"a"}}]`) ||
		strings.Count(asked, `"name"`) != 3 {
		t.Errorf("the pod asks for %s", asked)
	}
	if want := resource.MustParse("3Mi"); plugins.Overhead(vmi) != want.Value() {
		t.Errorf("overhead %d", plugins.Overhead(vmi))
	}
	if got := (Plugins{}).Overhead(&v1.VirtualMachineInstance{}); got != 0 {
		t.Errorf("overhead of nothing %d", got)
	}
}
