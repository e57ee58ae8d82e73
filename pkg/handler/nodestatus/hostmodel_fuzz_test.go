package nodestatus

import "testing"

// FuzzHostModel: what a probe says of the host model never makes virt-handler fall over, and becomes labels that the
// API server takes.
func FuzzHostModel(f *testing.F) {
	f.Add([]byte(`<domainCapabilities><cpu><mode name="host-model" supported="yes"><model>EPYC</model>` +
		`<feature policy="require" name="x2apic"/></mode></cpu></domainCapabilities>`))
	f.Add([]byte(`<domainCapabilities><cpu><mode name="host-model" supported="no"/></cpu></domainCapabilities>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ParseHostModel(data)
		if err != nil {
			return
		}
		for _, name := range append(append([]string{h.Model}, h.Require...), h.Disable...) {
			if len(name) > 63 || !labelName.MatchString(name) {
				t.Errorf("%q would be the end of a label", name)
			}
		}
	})
}
