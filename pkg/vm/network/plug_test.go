package network

import (
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestLacking: where an interface is plugged in that came while the guest runs, and that a pod which was made before
// does without.
func TestLacking(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	err := yaml.UnmarshalStrict([]byte(`
metadata: {namespace: ns, name: vm, uid: u}
spec:
  domain: {devices: {interfaces: [{name: default, masquerade: {}}, {name: red, bridge: {}, macAddress: "02:00:00:00:00:AA"}, {name: gone, bridge: {}, state: absent}, {name: mine, macvtap: {}}]}}
  networks:
  - {name: default, pod: {}}
  - {name: red, multus: {networkName: red-net}}
  - {name: gone, multus: {networkName: red-net}}
  - {name: mine, multus: {networkName: red-net}}
status: {phase: Running, interfaces: [{name: default}]}
`), vmi)
	if err != nil {
		t.Fatal(err)
	}
	asked := Annotations(vmi, nil, nil)
	plan := &Plan{Interfaces: []Interface{{Name: "default"}, {Name: "red"}, {Name: "gone"}}}
	for name, tc := range map[string]struct {
		plan            *Plan
		annotations     map[string]string
		has             string
		here, elsewhere string
	}{
		"has all":     {plan, asked, "default red", "", ""},
		"has it here": {plan, asked, "default", "red", ""},
		"before":      {&Plan{Interfaces: plan.Interfaces[:1]}, nil, "default", "", "red"},
		"another network": {
			plan,
			map[string]string{AnnotationNetworks: strings.ReplaceAll(asked[AnnotationNetworks], "red-net", "blue-net")},
			"default", "", "red",
		},
		"another address": {
			plan,
			map[string]string{AnnotationNetworks: strings.ReplaceAll(asked[AnnotationNetworks], "AA", "BB")},
			"default", "", "red",
		},
		"unreadable": {plan, map[string]string{AnnotationNetworks: "red-net"}, "default", "", "red"},
		"no plan":    {nil, asked, "", "", ""},
		"not told":   {plan, asked, "", "default red", ""},
	} {
		here, elsewhere := Lacking(vmi, tc.plan, tc.annotations, func(n string) bool {
			return slices.Contains(strings.Fields(tc.has), n)
		})
		if strings.Join(here, " ") != tc.here || strings.Join(elsewhere, " ") != tc.elsewhere {
			t.Errorf("%s: here %q, elsewhere %q", name, here, elsewhere)
		}
	}

	// An interface that the guest has is elsewhere when its network names another definition than the pod asked for.
	for name, tc := range map[string]struct{ definition, has, want string }{
		"the same":             {"red-net", "default red", ""},
		"with its namespace":   {"ns/red-net", "default red", ""},
		"another":              {"blue-net", "default red", "red"},
		"of another namespace": {"other/red-net", "default red", "red"},
		"not had":              {"blue-net", "default", ""},
	} {
		moved := vmi.DeepCopy()
		moved.Spec.Networks[1].Multus.NetworkName = tc.definition
		got := Moved(moved, asked, func(n string) bool { return slices.Contains(strings.Fields(tc.has), n) })
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: moved %q, want %q", name, got, tc.want)
		}
		if got := Moved(moved, nil, func(string) bool { return true }); len(got) != 0 {
			t.Errorf("%s: moved from nowhere: %q", name, got)
		}
	}

	vmi.Spec.Domain.Devices.Interfaces = vmi.Spec.Domain.Devices.Interfaces[:3]
	pod := Pod{Links: flannelPod().Links, Multus: true}
	made, err := NewPlan(vmi, pod)
	if err != nil || made.Has("red") || !made.Has("default") {
		t.Errorf("a pod that was made before: %+v, %v", made, err)
	}
	vmi.Status.Interfaces = append(vmi.Status.Interfaces, v1.VirtualMachineInstanceNetworkInterface{Name: "red"})
	if _, err := NewPlan(vmi, pod); err == nil || !strings.Contains(err.Error(), "Multus has not connected the pod") {
		t.Errorf("a guest that has it: %v", err)
	}
}
