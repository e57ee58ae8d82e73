package domain

import (
	"maps"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

func init() { maps.Copy(cases, sriovCases) }

// functions gives the guest interfaces with sriov, with what the network plan says of each.
func functions(vmi *v1.VirtualMachineInstance, f *Facts, planned map[string]string, names ...string) {
	for _, name := range names {
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{
			Name: name, InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}},
		})
		vmi.Spec.Networks = append(vmi.Spec.Networks,
			v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}})
		f.Network.Interfaces = append(f.Network.Interfaces,
			network.Interface{Name: name, Binding: network.SRIOV, PCI: planned[name]})
	}
}

var sriovCases = map[string]func(*v1.VirtualMachineInstance, *Facts){
	"sriov": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		functions(vmi, f, map[string]string{"red": "0000:3b:02.1", "blue": "0000:3b:02.0"}, "red", "blue", "gone")
		nics := vmi.Spec.Domain.Devices.Interfaces
		nics[2].PciAddress, nics[2].BootOrder, nics[2].ACPIIndex, nics[2].MacAddress = "0000:06:00.0", new(uint(1)), 7,
			"02:00:00:00:00:07"
		nics[1].Tag = "front"
		nics[3].State = v1.InterfaceStateAbsent
	},
	"sriov-by-device-plugin": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		functions(vmi, f, nil, "red", "blue", "green")
		f.PluginVariables = map[string]string{
			"KUBEVIRT_RESOURCE_NAME_red": "intel.com/sriov_a", "KUBEVIRT_RESOURCE_NAME_blue": "intel.com/sriov_b",
			"KUBEVIRT_RESOURCE_NAME_green": "intel.com/sriov_a",
			"PCIDEVICE_INTEL_COM_SRIOV_A":  "0000:3b:02.4,0000:3b:02.5", "PCIDEVICE_INTEL_COM_SRIOV_B": "0000:3c:02.0",
		}
	},
}

func TestSRIOVErrors(t *testing.T) {
	const nic = "spec.domain.devices.interfaces[2]: "
	for name, tc := range map[string]struct {
		planned, variables map[string]string
		want               string
	}{
		"unknown": {
			map[string]string{"a": "0000:3b:02.0"},
			nil,
			nic + `neither Multus nor the pod says which function of a network card interface "b" is`,
		},
		"no address": {
			map[string]string{"a": "0000:3b:02.0", "b": "../../x"},
			nil,
			nic + `the function of the network card: "../../x" is not a PCI address`,
		},
		"twice": {
			map[string]string{"a": "0000:3b:02.0", "b": "0000:3B:02.0"},
			nil,
			nic + `the function 0000:3b:02.0 of the network card is that of interface "a", too`,
		},
		"too few": {
			nil,
			map[string]string{
				"KUBEVIRT_RESOURCE_NAME_a": "v/x",
				"KUBEVIRT_RESOURCE_NAME_b": "v/x",
				"PCIDEVICE_V_X":            "0000:3b:02.0",
			},
			nic +
				`the device plugin of resource v/x gave the pod 1 functions of network cards, and more are needed: PCIDEVICE_V_X="0000:3b:02.0"`,
		},
	} {
		vmi, facts := baseline()
		functions(vmi, facts, tc.planned, "a", "b")
		facts.PluginVariables = tc.variables
		if _, err := Build(vmi, *facts); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
