package surface

import (
	"strings"
	"testing"
)

func TestValidateSRIOV(t *testing.T) {
	const nic, multus = "spec.domain.devices.interfaces[0]", "multus: {networkName: x}"
	for name, tc := range map[string]struct{ nic, network, want string }{
		"alone": {
			`{name: a, sriov: {}, macAddress: "02:00:00:00:00:01", pciAddress: "0000:06:00.0", bootOrder: 1}`, multus,
			``,
		},
		"up":      {`{name: a, sriov: {}, state: up}`, multus, ``},
		"default": {`{name: a, sriov: {}}`, "multus: {networkName: x, default: true}", ``},
		"pod network": {
			`{name: a, sriov: {}}`, "pod: {}",
			nic + `.sriov: is for networks of Multus', and "a" is the pod network; use masquerade: {}`,
		},
		"beside": {
			`{name: a, sriov: {}, bridge: {}}`, multus, nic + `.sriov: is beside masquerade or bridge; keep one`,
		},
		"plugin": {
			`{name: a, sriov: {}, binding: {name: x}}`, multus,
			nic + `.binding: is beside masquerade, bridge or sriov; keep one`,
		},
		"ports": {`{name: a, sriov: {}, ports: [{port: 80}]}`, multus, ``},
		"down": {
			`{name: a, sriov: {}, state: down}`, multus,
			nic + `.state: "down" is not for sriov, where the link is the device's own`,
		},
		"absent": {
			`{name: a, sriov: {}, state: absent}`, multus,
			nic + `.state: "absent" is not for sriov; remove the interface`,
		},
	} {
		vmi := instance(t, "domain: {devices: {interfaces: ["+tc.nic+"]}}\nnetworks: [{name: a, "+tc.network+"}]")
		errs := validateInterfaces(&vmi.Spec, specPath)
		if got := Message(errs); tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) || len(errs) > 1 {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
