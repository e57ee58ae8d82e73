package passthrough

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestSEV(t *testing.T) {
	policy := func(on *bool) *v1.LaunchSecurity {
		return &v1.LaunchSecurity{SEV: &v1.SEV{Policy: &v1.SEVPolicy{EncryptedState: on}}}
	}
	for name, tc := range map[string]struct {
		security *v1.LaunchSecurity
		sev, es  bool
	}{
		"none":      {nil, false, false},
		"empty":     {&v1.LaunchSecurity{}, false, false},
		"SEV":       {&v1.LaunchSecurity{SEV: &v1.SEV{}}, true, false},
		"no state":  {policy(nil), true, false},
		"state off": {policy(new(false)), true, false},
		"state":     {policy(new(true)), true, true},
		"SNP":       {&v1.LaunchSecurity{SNP: &v1.SEVSNP{}}, false, false},
	} {
		spec := &v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{LaunchSecurity: tc.security}}
		if sev, es := SEV(&spec.Domain), SEVES(&spec.Domain); sev != tc.sev || es != tc.es || Locks(spec) != tc.sev {
			t.Errorf("%s: SEV %t, SEV-ES %t, locks %t", name, sev, es, Locks(spec))
		}
	}
}
