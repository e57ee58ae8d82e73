package node

import (
	"encoding/binary"
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
  <feature name='old'><cpuid eax_in='0x00000001' ecx='0x00000001'/></feature>
  <feature name='new'><cpuid eax_in='0x00000007' ecx_in='0x00' ebx='0x00000020'/></feature>
  <feature name='x2apic'><cpuid eax_in='0x00000001' ecx='0x00200000'/></feature>
  <feature name='register'><msr index='0x10a' edx='0x00000000' eax='0x00000001'/></feature>
</cpus>`,
	"x86_vendors.xml":  `<cpus><vendor name='Intel' string='GenuineIntel'/></cpus>`,
	"x86_Plain.xml":    `<cpus><model name='Plain'><feature name='old'/><feature name='x2apic'/><feature name='register'/></model></cpus>`,
	"x86_Plain-v1.xml": `<cpus><model name='Plain-v1'><feature name='old'/></model></cpus>`,
	"x86_Better.xml":   `<cpus><model name='Better'><model name='Plain'/><feature name='new'/></model></cpus>`,
	"x86_Later.xml":    `<cpus><model name='Later'><feature name='old'/><feature name='new' added='yes'/></model></cpus>`,
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
	older = map[Leaf]Registers{{}: intel, {Function: 1}: {0, 0, 1, 0}}
	newer = map[Leaf]Registers{{}: intel, {Function: 1}: {0, 0, 3, 0}, {Function: 7}: {0, 0x20, 0, 0}}
)

func TestCPUModels(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu      map[Leaf]Registers
		obsolete map[string]bool
		want     string
	}{
		"nothing":  {nil, nil, ""},
		"older":    {older, nil, "cpu-model.node.kubevirt.io/Later cpu-model.node.kubevirt.io/Plain cpu-vendor.node.kubevirt.io/Intel"},
		"newer":    {newer, nil, "cpu-model.node.kubevirt.io/Better cpu-model.node.kubevirt.io/Later cpu-model.node.kubevirt.io/Plain cpu-vendor.node.kubevirt.io/Intel"},
		"obsolete": {newer, map[string]bool{"Plain": true, "Later": false}, "cpu-model.node.kubevirt.io/Better cpu-model.node.kubevirt.io/Later cpu-vendor.node.kubevirt.io/Intel"},
	} {
		labels, err := CPUModels(mapDir(t), func() (map[Leaf]Registers, error) { return tc.cpu, nil }, func() map[string]bool { return tc.obsolete })
		if err != nil {
			t.Fatal(err)
		}
		all, err := All(labels, CPUManager(t.TempDir()))()
		if err != nil {
			t.Fatal(err)
		}
		var set []string
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if all[key] != nil {
				set = append(set, key)
			}
		}
		if got := strings.Join(set, " "); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		if _, told := all[v1.CPUModelLabel+"Better"]; !told {
			t.Errorf("%s: a model that the node lost would keep its label", name)
		}
	}
	if _, err := CPUModels(t.TempDir(), nil, nil); err == nil {
		t.Error("no map, and no error")
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
