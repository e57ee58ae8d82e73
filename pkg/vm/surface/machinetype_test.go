package surface

import "testing"

func TestIsQ35(t *testing.T) {
	for machine, want := range map[string]bool{
		DefaultMachineType: true, "pc-q35-9.2": true, "pc-q35-rhel9.6.0": true,
		"": false, "pc": false, "pc-q35": false, "pc-q35-": false, "pc-i440fx-9.2": false, "Q35": false,
		"q35-9.2": false,
		"microvm": false, "virt": false, "pc-q35-9.2'": false,
	} {
		if got := IsQ35(machine); got != want {
			t.Errorf("%q: %t", machine, got)
		}
	}
}
