package launcher

import (
	"os"
	"path/filepath"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/domain"
)

func TestHostCPU(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "devices/system/cpu/cpu7")
	for _, d := range []string{"topology", "node1"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "topology/thread_siblings_list"), []byte("3,7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int]domain.HostCPU{7: {ID: 7, Node: 1, Core: 3}, 9: {ID: 9, Core: 9}} {
		if got, err := hostCPU(sys, id); err != nil || got != want {
			t.Errorf("CPU %d: %+v, %v; want %+v", id, got, err, want)
		}
	}
}

func TestOwnCPUs(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	if cpus, err := ownCPUs(vmi, "/sys"); cpus != nil || err != nil {
		t.Errorf("a guest with none of its own: %v, %v", cpus, err)
	}
	vmi.Spec.Domain.CPU = &v1.CPU{DedicatedCPUPlacement: true}
	if cpus, err := ownCPUs(vmi, "/sys"); len(cpus) == 0 || err != nil {
		t.Errorf("this machine has no CPU: %v", err)
	}
}
