package config

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestSerialConsoleLog(t *testing.T) {
	for name, tc := range map[string]struct {
		gates    []string
		disabled bool
		want     bool
	}{
		"closed":             {},
		"open":               {gates: []string{"SerialConsoleLog"}, want: true},
		"open, but disabled": {gates: []string{"SerialConsoleLog"}, disabled: true},
	} {
		kv := &v1.KubeVirt{}
		kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{FeatureGates: tc.gates}
		if tc.disabled {
			kv.Spec.Configuration.VirtualMachineOptions = &v1.VirtualMachineOptions{
				DisableSerialConsoleLog: &v1.DisableSerialConsoleLog{},
			}
		}
		if got, err := FromKubeVirt(kv); err != nil || got.SerialConsoleLog != tc.want {
			t.Errorf("%s: %t, %v", name, got.SerialConsoleLog, err)
		}
	}
}
