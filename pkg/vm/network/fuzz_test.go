package network

import (
	"net"
	"slices"
	"strings"
	"testing"
)

// FuzzAttachments plans with what a pod's annotations say of its networks, which whoever may edit pods can write. They
// name no link that the VMI's networks have not, and whatever MAC address comes of them is one.
func FuzzAttachments(f *testing.F) {
	const asked = `[{"name":"red-net","namespace":"other","interface":"podb1f51a511f1"}]`
	for _, status := range []string{
		`[{"name":"cbr0","interface":"eth0","ips":["10.1.0.5"],"default":true},
		  {"name":"other/red-net","interface":"podb1f51a511f1","mac":"5A:00:00:00:00:01","dns":{},
		   "device-info":{"type":"pci","pci":{"pci-address":"0000:3b:02.1"}}},
		  {"name":"ns1/blue-net","interface":"pod16477688c0e"}]`,
		`[{"interface":"podb1f51a511f1","mac":"x","device-info":{"pci":{"pci-address":"../../0000:3b:02.1"}}},
		  {"interface":"pod16477688c0e","mac":"00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00","device-info":null}]`,
		`[{"interface":"podb1f51a511f1"},{"interface":"podb1f51a511f1","mac":"5a:00:00:00:00:01"},{"interface":"pod16477688c0e"}]`,
		`[null,{}]`, `null`, `{}`, `[`, `""`, "", strings.Repeat("[", 1000),
	} {
		f.Add(status, asked)
	}
	f.Add(`[]`, `[{"cni-args":{"a":7}}]`)
	vmi := vmiOf(f, sriovSpec)
	f.Fuzz(func(t *testing.T, status, asked string) {
		annotations := map[string]string{AnnotationStatus: status, AnnotationNetworks: asked}
		list, known := Attachments(annotations)
		if !known && list != nil || len(status) > maxStatus && known {
			t.Fatalf("%v, %t", list, known)
		}
		pod := ptpPod()
		pod.Attachments, pod.Multus = list, known
		plan, err := NewPlan(vmi, pod)
		for _, nic := range vmi.Spec.Domain.Devices.Interfaces[1:] {
			link := "podb1f51a511f1"
			if nic.Name == "blue" {
				link = "pod16477688c0e"
			}
			attached := slices.ContainsFunc(list, func(a Attachment) bool { return a.Interface == link })
			if err == nil && !attached {
				t.Errorf("%s is planned, and its link is not in %q", nic.Name, status)
			}
		}
		if err != nil {
			return
		}
		for i, nic := range plan.Interfaces {
			if nic.Name != vmi.Spec.Domain.Devices.Interfaces[i].Name {
				t.Errorf("interface %d is %s", i, nic.Name)
			}
			if nic.Binding != SRIOV {
				continue
			}
			if _, err := net.ParseMAC(nic.MAC); nic.MAC != "" && err != nil || nic.Tap != "" || nic.BridgeLink != "" {
				t.Errorf("planned %+v by %q", nic, status)
			}
			if nic.PCI != "" && !slices.ContainsFunc(list, func(a Attachment) bool {
				return a.Interface == nic.PodLink && a.DeviceInfo != nil && a.DeviceInfo.PCI.Address == nic.PCI
			}) {
				t.Errorf("%s has the device %q of another link", nic.Name, nic.PCI)
			}
		}
		red, network := vmi.Spec.Domain.Devices.Interfaces[1], vmi.Spec.Networks[1]
		if Connected(annotations, vmi.Namespace, &red, &network) && !strings.Contains(asked, "red-net") &&
			!strings.Contains(asked, "\\u") {
			t.Errorf("connected by %q", asked)
		}
	})
}
