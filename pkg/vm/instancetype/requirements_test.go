package instancetype

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/yaml"
)

// A preference's requirement counts the vCPUs that the guest will have, whatever says their number.
func TestRequiredCPUs(t *testing.T) {
	resolved := Resolved{
		Preference: &Object{Preference: &v1beta1.VirtualMachinePreferenceSpec{
			Requirements: &v1beta1.PreferenceRequirements{CPU: &v1beta1.CPUPreferenceRequirement{Guest: 4}},
		}},
	}
	for domain, met := range map[string]bool{
		"{}":                                    false,
		"{cpu: {sockets: 2}}":                   false,
		"{cpu: {sockets: 2, cores: 2}}":         true,
		"{resources: {requests: {cpu: 3500m}}}": true,
		"{resources: {limits: {cpu: 4}}}":       true,
		"{resources: {requests: {cpu: 4}, limits: {cpu: 2}}}": false,
		"{cpu: {cores: 2}, resources: {requests: {cpu: 4}}}":  false,
	} {
		spec := &v1.VirtualMachineInstanceSpec{}
		if err := yaml.UnmarshalStrict([]byte("domain: "+domain), spec); err != nil {
			t.Fatal(err)
		}
		if errs := requirements(resolved, spec, field.NewPath("spec")); (len(errs) == 0) != met {
			t.Errorf("%s: %v", domain, errs)
		}
	}
}
