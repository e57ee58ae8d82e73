package filesystems

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestPreallocated(t *testing.T) {
	const share = "devices: {filesystems: [{name: a, virtiofs: {}}]}, "
	for text, want := range map[string]bool{
		"{" + share + "memory: {guest: 1Gi}}":                                                     false,
		"{" + share + "resources: {limits: {memory: 2Gi}}}":                                       true,
		"{" + share + "cpu: {dedicatedCpuPlacement: true}, memory: {guest: 1Gi}}":                 true,
		"{" + share + "resources: {limits: {memory: 2Gi}}, memory: {hugepages: {pageSize: 2Mi}}}": false,
		"{resources: {limits: {memory: 2Gi}}}":                                                    false,
	} {
		domain := &v1.DomainSpec{}
		if err := yaml.UnmarshalStrict([]byte(text), domain); err != nil {
			t.Fatal(err)
		}
		if got := Preallocated(domain); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// A unix socket's address has 107 bytes.
func TestSocketIsShort(t *testing.T) {
	if path := Socket(strings.Repeat("x", MaxTag)); len(path) > 107 {
		t.Errorf("%s has %d bytes", path, len(path))
	}
}
