package vmicontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What no node has is asked for all the same, in numbers that have not overflowed: the scheduler says what is missing.
func TestPodBeyondAnyNode(t *testing.T) {
	for name, tc := range map[string]struct {
		vmi        string
		overcommit int
		name       corev1.ResourceName
		least      string
	}{
		"vCPUs":                   {`cpu: {sockets: 65536}`, 0, corev1.ResourceCPU, "6553"},
		"memory":                  {`memory: {guest: 1Ei}`, 0, corev1.ResourceMemory, "1Ei"},
		"memory, shared":          {`memory: {guest: 1Ei}`, 200, corev1.ResourceMemory, "512Pi"},
		"memory, more than asked": {`memory: {guest: 1Ei}`, 10, corev1.ResourceMemory, "3Ei"},
		"pages":                   {`memory: {guest: 3Gi, hugepages: {pageSize: 3Mi}}`, 0, "hugepages-3Mi", "3Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := plan(t, "spec: {domain: {"+tc.vmi+"}}", func(f *Facts) {
				if tc.overcommit > 0 {
					f.Config.MemoryOvercommit = tc.overcommit
				}
			})
			requests := pod.Spec.Containers[0].Resources.Requests
			if got := requests[tc.name]; got.Cmp(resource.MustParse(tc.least)) < 0 {
				t.Errorf("%s: requested %s, want at least %s", tc.name, got.String(), tc.least)
			}
			for name, got := range requests {
				if got.Sign() < 0 {
					t.Errorf("%s: requested %s", name, got.String())
				}
			}
		})
	}
}
