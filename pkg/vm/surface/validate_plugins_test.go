package surface

import (
	"strings"
	"testing"
)

func TestValidateBindingOfInterfaces(t *testing.T) {
	for name, tc := range map[string]struct{ nic, want string }{
		"alone": {`{name: a, binding: {name: x}}`, ``},
		"beside": {
			`{name: a, binding: {name: x}, bridge: {}}`,
			`spec.domain.devices.interfaces[0].binding: is beside masquerade, bridge or sriov; keep one`,
		},
		"no name": {
			`{name: a, binding: {name: ""}}`,
			`spec.domain.devices.interfaces[0].binding.name: is not set; it names a network binding plugin`,
		},
		"ports": {`{name: a, binding: {name: x}, ports: [{port: 80}]}`, ``},
	} {
		vmi := instance(t, "domain: {devices: {interfaces: ["+tc.nic+"]}}\nnetworks: [{name: a, pod: {}}]")
		errs := validateInterfaces(&vmi.Spec, specPath)
		if got := Message(errs); tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) || len(errs) > 1 {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
