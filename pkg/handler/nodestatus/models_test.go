package nodestatus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// A map in libvirt's form, of invented models.
var testMap = map[string]string{
	"x86_features.xml": `<cpus>
  <feature name='tied' migratable='no'><cpuid eax_in='0x00000001' ecx='0x00000001'/></feature>
  <feature name='old'><cpuid eax_in='0x00000001' ecx='0x00000001'/></feature>
  <feature name='new'><cpuid eax_in='0x00000007' ecx_in='0x00' ebx='0x00000020'/></feature>
  <feature name='x2apic'><cpuid eax_in='0x00000001' ecx='0x00200000'/></feature>
  <feature name='register'><msr index='0x10a' edx='0x00000000' eax='0x00000001'/></feature>
</cpus>`,
	"x86_vendors.xml":  `<cpus><vendor name='Intel' string='GenuineIntel'/></cpus>`,
	"x86_Plain.xml":    `<cpus><model name='Plain'><vendor name='Intel'/><feature name='old'/><feature name='x2apic'/><feature name='unknown'/></model></cpus>`,
	"x86_Plain-v1.xml": `<cpus><model name='Plain-v1'><feature name='old'/></model></cpus>`,
	"x86_Better.xml":   `<cpus><model name='Better'><model name='Plain'/><feature name='new'/><feature name='register'/></model></cpus>`,
	"x86_Later.xml":    `<cpus><model name='Later'><signature family='6' model='60'/><feature name='old'/><feature name='new' added='yes'/></model></cpus>`,
	"x86_Lost.xml":     `<cpus><model name='Lost'><model name='Nowhere'/></model></cpus>`,
	"arm_Other.xml":    `<`,
}

func mapDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range testMap {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var (
	intel = Registers{1, 0x756e6547, 0x6c65746e, 0x49656e69}
	older = &CPU{Leaves: map[Leaf]Registers{{}: intel, {Function: 1}: {0, 0, 1, 0}}}
	newer = &CPU{
		Leaves: map[Leaf]Registers{{}: intel, {Function: 1}: {0, 0, 3, 0}, {Function: 7}: {0, 0x20, 0, 0}},
		MSRs:   map[uint32]uint64{0x10a: 3},
	}
	signed = &CPU{
		Leaves: map[Leaf]Registers{{}: intel, {Function: 1}: {0x000306c3, 0, 3, 0}, {Function: 7}: {0, 0x20, 0, 0}},
		MSRs:   map[uint32]uint64{0x10a: 1},
	}
)

func TestCPULabels(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu      *CPU
		obsolete map[string]bool
		want     string
	}{
		"older": {older, nil, `cpu-feature/x2apic cpu-feature/tied cpu-feature/old cpu-model/Later cpu-model/Plain
			cpu-model-migration/Later cpu-model-migration/Plain cpu-vendor/Intel host-model-cpu/Plain`},
		"newer": {
			newer, nil,
			`cpu-feature/x2apic cpu-feature/tied cpu-feature/old cpu-feature/new cpu-feature/register cpu-model/Better cpu-model/Later cpu-model/Plain
			cpu-model-migration/Better cpu-model-migration/Later cpu-model-migration/Plain cpu-vendor/Intel host-model-cpu/Better`,
		},
		"obsolete": {
			newer,
			map[string]bool{"Better": true, "Later": false},
			`cpu-feature/x2apic cpu-feature/tied cpu-feature/old cpu-feature/new cpu-feature/register cpu-model/Later cpu-model/Plain
			cpu-model-migration/Later cpu-model-migration/Plain cpu-vendor/Intel host-model-cpu/Better obsolete`,
		},
		"by signature": {
			signed, nil,
			`cpu-feature/x2apic cpu-feature/tied cpu-feature/old cpu-feature/new cpu-feature/register cpu-model/Better cpu-model/Later cpu-model/Plain
			cpu-model-migration/Better cpu-model-migration/Later cpu-model-migration/Plain cpu-vendor/Intel
			host-model-cpu/Later host-model-required-features/new host-model-required-features/register host-model-required-features/x2apic`,
		},
	} {
		p, err := ReadProcessor(mapDir(t), &Hardware{CPU: *tc.cpu})
		if err != nil {
			t.Fatal(err)
		}
		wanted := p.labels(tc.obsolete)
		var want []string
		for text := range strings.FieldsSeq(tc.want) {
			if text == "obsolete" {
				want = append(want, v1.NodeHostModelIsObsoleteLabel)
				continue
			}
			want = append(want, strings.Replace(text, "/", ".node.kubevirt.io/", 1))
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(wanted.Labels)); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for key := range wanted.Labels {
			if !wanted.owns(key) {
				t.Errorf("%s would stay when the node loses it", key)
			}
		}
	}
	if _, err := ReadProcessor(t.TempDir(), nil); err == nil {
		t.Error("no map, and no error")
	}
}

func TestHardwareLabels(t *testing.T) {
	dir := mapDir(t)
	hardware, err := ReadProcessor(dir,
		&Hardware{CPU: *newer, Enlightenments: []string{"base", "synic"}, TSC: 2_500_000_000, TSCScalable: true})
	if err != nil {
		t.Fatal(err)
	}
	emulated, err := ReadProcessor(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	emulate := false
	read := func(p *Processor) func() (*Processor, error) { return func() (*Processor, error) { return p, nil } }
	host, problem := HostModel{}, errors.New("no probe")
	labels := CPULabels(read(hardware), read(emulated), func() (HostModel, error) { return host, problem },
		func() (bool, map[string]bool) { return emulate, nil })
	wanted, _ := labels()
	for key, want := range map[string]string{
		v1.HypervLabel + "base": "true", v1.HypervLabel + "synic": "true",
		v1.CPUTimerLabel + "tsc-frequency": "2500000000",
		v1.CPUTimerLabel + "tsc-scalable":  "true", v1.CPUModelVendorLabel + "Intel": "true",
	} {
		if got := wanted.Labels[key]; got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
	if got := hostModels(wanted); got != "Better" {
		t.Errorf("without a probe, host-model is %q, want the closest", got)
	}
	problem = fmt.Errorf("probing: %w", ErrNotYet)
	if wanted, err = labels(); err != nil || hostModels(wanted) != "" || wanted.owns(v1.HostModelCPULabel+"Better") ||
		wanted.owns(v1.SupportedHostModelMigrationCPU+"Better") || !wanted.owns(v1.CPUModelLabel+"Better") {
		t.Errorf("while it is not known, the labels change: %v, %v", wanted, err)
	}
	host, problem = HostModel{Model: "Later", Require: []string{"new"}}, nil
	if wanted, err = labels(); err != nil || hostModels(wanted) != "Later" {
		t.Errorf("host-model is %q, %v; want libvirt's", hostModels(wanted), err)
	}
	emulate = true
	wanted, _ = labels()
	want := []string{v1.CPUFeatureLabel + "x2apic", v1.CPUModelVendorLabel + "AMD"}
	if got := slices.Sorted(maps.Keys(wanted.Labels)); !slices.Equal(got, want) {
		t.Errorf("emulated: %v, want %v", got, want)
	}
	labels = CPULabels(nil, func() (*Processor, error) { return nil, errors.New("no map") }, nil,
		func() (bool, map[string]bool) { return false, nil })
	if wanted, err := labels(); err == nil || len(wanted.Owned) > 0 {
		t.Errorf("what is not known would be taken away: %v, %v", wanted.Owned, err)
	}
}

// hostModels are the models that labels give as the host's.
func hostModels(w Wanted) string {
	var out []string
	for key := range w.Labels {
		if model, ok := strings.CutPrefix(key, v1.HostModelCPULabel); ok {
			out = append(out, model)
		}
	}
	return strings.Join(out, " ")
}

func TestSignature(t *testing.T) {
	for eax, want := range map[uint32]signature{0x000306c3: {6, 60}, 0x00a00f11: {25, 1}, 0x00000f4a: {15, 4}} {
		if got := signatureOf(eax); got != want {
			t.Errorf("%#x: %v, want %v", eax, got, want)
		}
	}
}

func TestLeaves(t *testing.T) {
	buffer := make([]byte, 8+2*leafSize)
	binary.NativeEndian.PutUint32(buffer, 1)
	for i, n := range []uint32{7, 1, 0, 10, 11, 12, 13} {
		binary.NativeEndian.PutUint32(buffer[8+4*i:], n)
	}
	got, err := leaves(buffer)
	if err != nil || len(got) != 1 || got[Leaf{7, 1}] != (Registers{10, 11, 12, 13}) {
		t.Errorf("%v, %v", got, err)
	}
	binary.NativeEndian.PutUint32(buffer, 3)
	if _, err := leaves(buffer); err == nil {
		t.Error("more than there is was read")
	}
}
