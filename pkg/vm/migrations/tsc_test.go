package migrations

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestNeedsTSC(t *testing.T) {
	cpu := func(features ...v1.CPUFeature) *v1.CPU { return &v1.CPU{Features: features} }
	aes, invtsc := v1.CPUFeature{Name: "aes"}, v1.CPUFeature{Name: "invtsc"}
	notified := func(enabled *bool) *v1.Features {
		return &v1.Features{Hyperv: &v1.FeatureHyperv{Reenlightenment: &v1.FeatureState{Enabled: enabled}}}
	}
	for name, c := range map[string]struct {
		spec v1.DomainSpec
		want Kind
	}{
		"nothing":           {v1.DomainSpec{}, Unknown},
		"another feature":   {v1.DomainSpec{CPU: cpu(aes)}, Unknown},
		"invtsc":            {v1.DomainSpec{CPU: cpu(aes, invtsc)}, Feature},
		"invtsc, required":  {v1.DomainSpec{CPU: cpu(v1.CPUFeature{Name: "invtsc", Policy: "require"})}, Feature},
		"invtsc, forced":    {v1.DomainSpec{CPU: cpu(v1.CPUFeature{Name: "invtsc", Policy: "force"})}, Feature},
		"invtsc, optional":  {v1.DomainSpec{CPU: cpu(v1.CPUFeature{Name: "invtsc", Policy: "optional"})}, Unknown},
		"invtsc, disabled":  {v1.DomainSpec{CPU: cpu(v1.CPUFeature{Name: "invtsc", Policy: "disable"})}, Unknown},
		"other of Hyper-V":  {v1.DomainSpec{Features: &v1.Features{Hyperv: &v1.FeatureHyperv{}}}, Unknown},
		"notified":          {v1.DomainSpec{Features: notified(nil)}, Field},
		"notified, by word": {v1.DomainSpec{Features: notified(new(true))}, Field},
		"not notified":      {v1.DomainSpec{Features: notified(new(false))}, Unknown},
		"both": {
			v1.DomainSpec{CPU: cpu(invtsc), Features: notified(nil)}, Feature,
		},
	} {
		if cause, ok := NeedsTSC(&c.spec); ok != (c.want != Unknown) || cause.Kind != c.want {
			t.Errorf("%s: %+v, %v", name, cause, ok)
		}
	}
}
