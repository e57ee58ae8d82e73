package vmistatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestKernelChecksums(t *testing.T) {
	next := &v1.VirtualMachineInstanceStatus{}
	kernelChecksums(map[string]uint32{"root": 7}, next)
	if next.KernelBootStatus != nil {
		t.Errorf("a guest that boots from its disk: %+v", next.KernelBootStatus)
	}
	kernelChecksums(map[string]uint32{names.ChecksumKernel: 7, names.ChecksumInitrd: 8}, next)
	kernelChecksums(nil, next) // a launcher that does not say
	want := &v1.KernelBootStatus{KernelInfo: &v1.KernelInfo{Checksum: 7}, InitrdInfo: &v1.InitrdInfo{Checksum: 8}}
	if diff := cmp.Diff(want, next.KernelBootStatus); diff != "" {
		t.Error(diff)
	}
}
