package network

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sriovSpec = `
domain: {devices: {interfaces: [{name: default, masquerade: {}}, {name: red, sriov: {}}, {name: blue, sriov: {}, macAddress: "02:00:00:00:00:AB"}]}}
networks: [{name: default, pod: {}}, {name: red, multus: {networkName: other/red-net}}, {name: blue, multus: {networkName: blue-net}}]
`

// sriovPod is one as Multus and the SR-IOV CNI plugin leave it: a function that a driver for pass-through has is no
// link of the pod's.
func sriovPod(status string) Pod {
	pod := ptpPod()
	pod.Attachments, pod.Multus = Attachments(map[string]string{AnnotationStatus: status})
	return pod
}

func TestSRIOV(t *testing.T) {
	vmi := vmiOf(t, sriovSpec)
	plan, err := NewPlan(vmi, sriovPod(`[
		{"name":"cbr0","interface":"eth0","ips":["10.1.0.5"],"default":true},
		{"name":"other/red-net","interface":"podb1f51a511f1","mac":"5A:00:00:00:00:01","dns":{},
		 "device-info":{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:3b:02.1"}}},
		{"name":"ns1/blue-net","interface":"pod16477688c0e","dns":{}}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Interface{
		{Name: "red", Binding: SRIOV, PodLink: "podb1f51a511f1", MAC: "5a:00:00:00:00:01", PCI: "0000:3b:02.1"},
		{Name: "blue", Binding: SRIOV, PodLink: "pod16477688c0e", MAC: "02:00:00:00:00:ab"},
	}
	if len(plan.Interfaces) != 3 {
		t.Fatalf("plan %+v", plan)
	}
	for i := range want {
		if diff := cmp.Diff(want[i].PCI+want[i].MAC+want[i].PodLink+want[i].Name,
			plan.Interfaces[i+1].PCI+plan.Interfaces[i+1].MAC+plan.Interfaces[i+1].PodLink+
				plan.Interfaces[i+1].Name); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if got := plan.Interfaces[i+1]; got.Binding != SRIOV || got.Tap != "" || got.BridgeLink != "" ||
			got.Guest.IsValid() {
			t.Errorf("made in the pod: %+v", got)
		}
	}
	here, elsewhere := Lacking(vmi, &plan,
		map[string]string{AnnotationNetworks: Annotations(vmi, nil, nil)[AnnotationNetworks]}, func(name string) bool {
			return name == "default"
		})
	if len(here)+len(elsewhere) > 0 {
		t.Errorf("to be plugged in %v, after a migration %v", here, elsewhere)
	}
	if got := PlugObstacle(&vmi.Spec.Domain.Devices.Interfaces[1], &vmi.Spec.Networks[1]); got == "" {
		t.Error("a function of a network card can be plugged in")
	}
	if got, want := Definitions(vmi), (map[string][2]string{
		"red":  {"other", "red-net"},
		"blue": {"ns1", "blue-net"},
	}); !cmp.Equal(got, want) {
		t.Errorf("definitions %v", got)
	}
}

func TestSRIOVErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  Pod
		want string
	}{
		"no Multus": {ptpPod(), `interface "red": network "red" needs Multus, which does not run on this node`},
		"not connected": {
			sriovPod(`[{"name":"cbr0","interface":"eth0","default":true}]`),
			`interface "red": network "red": Multus has not connected the pod to NetworkAttachmentDefinition other/red-net`,
		},
	} {
		if _, err := NewPlan(vmiOf(t, sriovSpec), tc.pod); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
