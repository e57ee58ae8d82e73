package launcher

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/disk"
)

func TestSameKernel(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	here := disk.Kernel{Kernel: "/k", Initrd: "/i", KernelChecksum: 7, InitrdChecksum: 8}
	for name, tc := range map[string]struct {
		there *v1.KernelBootStatus
		here  disk.Kernel
		same  bool
	}{
		"same": {
			&v1.KernelBootStatus{KernelInfo: &v1.KernelInfo{Checksum: 7}, InitrdInfo: &v1.InitrdInfo{Checksum: 8}},
			here, true,
		},
		"another kernel": {&v1.KernelBootStatus{KernelInfo: &v1.KernelInfo{Checksum: 9}}, here, false},
		"another initrd": {
			&v1.KernelBootStatus{KernelInfo: &v1.KernelInfo{Checksum: 7}, InitrdInfo: &v1.InitrdInfo{Checksum: 9}},
			here, false,
		},
		"nobody said":     {nil, here, true},
		"from a disk now": {&v1.KernelBootStatus{KernelInfo: &v1.KernelInfo{Checksum: 9}}, disk.Kernel{}, true},
	} {
		vmi.Status.KernelBootStatus = tc.there
		vmi.Spec.Domain.Firmware = &v1.Firmware{
			KernelBoot: &v1.KernelBoot{Container: &v1.KernelBootContainer{Image: "registry.example/kernel:latest"}},
		}
		if err := sameKernel(vmi, tc.here); (err == nil) != tc.same ||
			err != nil && !strings.Contains(err.Error(), "registry.example/kernel:latest is another image") {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := map[string]uint32{names.ChecksumKernel: 7, names.ChecksumInitrd: 8}
	if diff := cmp.Diff(want, checksums(nil, here)); diff != "" {
		t.Error(diff)
	}
}
