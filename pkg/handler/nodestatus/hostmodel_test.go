package nodestatus

import (
	"os"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestParseHostModel(t *testing.T) {
	const xml = `<domainCapabilities><path>/usr/bin/qemu-system-x86_64</path><domain>kvm</domain><cpu>
<mode name="host-passthrough" supported="yes"/><mode name="maximum" supported="yes"/>
<mode name="host-model" supported="yes"><model fallback="forbid">EPYC</model><vendor>AMD</vendor>
<maxphysaddr mode="passthrough" limit="40"/><feature policy="require" name="x2apic"/>
<feature policy="disable" name="topoext"/></mode>
<mode name="custom" supported="yes"><model usable="no">486</model></mode></cpu></domainCapabilities>`
	h, err := ParseHostModel([]byte(xml))
	if err != nil || h.Model != "EPYC" || !slices.Equal(h.Require, []string{"x2apic"}) ||
		!slices.Equal(h.Disable, []string{"topoext"}) {
		t.Errorf("%+v, %v", h, err)
	}
	for name, bad := range map[string]string{
		"not supported": strings.Replace(xml, `"host-model" supported="yes"`, `"host-model" supported="no"`, 1),
		"no label":      strings.Replace(xml, ">EPYC<", ">EP YC<", 1),
		"no feature":    strings.Replace(xml, "topoext", "a/b", 1),
		"not libvirt's": "<capabilities/>",
		"no XML":        "{}",
	} {
		if h, err := ParseHostModel([]byte(bad)); err == nil {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// A CPU that lacks a feature of its model, as one of TCG or of a hypervisor does, is still shown as the model: libvirt
// leaves the feature out. A guest moves to nodes that have the rest.
func TestHostModelWithoutAFeature(t *testing.T) {
	p, err := ReadProcessor(mapDir(t), &Hardware{CPU: *older})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(p.models, "Better") {
		t.Fatal("the CPU has all of Better: the test would prove nothing")
	}
	wanted := p.With(HostModel{Model: "Better", Require: []string{"x2apic"}, Disable: []string{"new"}}).labels(nil)
	if got := hostModels(wanted); got != "Better" {
		t.Errorf("host-model is %q, want libvirt's", got)
	}
	for _, key := range []string{
		v1.SupportedHostModelMigrationCPU + "Better", v1.HostModelRequiredFeaturesLabel + "x2apic",
		v1.HostModelRequiredFeaturesLabel + "old", v1.CPUFeatureLabel + "old",
	} {
		if wanted.Labels[key] != "true" {
			t.Errorf("no label %s: %v", key, wanted.Labels)
		}
	}
	for _, key := range []string{
		v1.HostModelRequiredFeaturesLabel + "new", v1.HostModelRequiredFeaturesLabel + "unknown",
		v1.CPUModelLabel + "Better",
	} {
		if _, there := wanted.Labels[key]; there {
			t.Errorf("label %s", key)
		}
	}
}

// What libvirt 11.3 says in the machine of `make lab`, cut to what is read: an EPYC without some of its features.
func TestParseHostModelOfTheLab(t *testing.T) {
	data, err := os.ReadFile("testdata/lab-capabilities.xml")
	if err != nil {
		t.Fatal(err)
	}
	h, err := ParseHostModel(data)
	if err != nil || h.Model != "EPYC" || !slices.Contains(h.Require, "npt") ||
		!slices.Contains(h.Disable, "fxsr_opt") {
		t.Errorf("%+v, %v", h, err)
	}
}
