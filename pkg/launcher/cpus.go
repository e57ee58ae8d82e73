package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// ownCPUs returns the pod's CPUs, for a guest with CPUs of its own; nil for others.
func ownCPUs(vmi *v1.VirtualMachineInstance, sys string) ([]domain.HostCPU, error) {
	if !sizing.Dedicated(&vmi.Spec.Domain) {
		return nil, nil
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read which CPUs the pod has: %w", err)
	}
	var out []domain.HostCPU
	for id := range len(set) * strconv.IntSize {
		if set.IsSet(id) {
			cpu, err := hostCPU(sys, id)
			if err != nil {
				return nil, err
			}
			out = append(out, cpu)
		}
	}
	return out, nil
}

// hostCPU reads where a CPU is from a /sys.
func hostCPU(sys string, id int) (domain.HostCPU, error) {
	cpu := domain.HostCPU{ID: id, Core: id}
	dir := filepath.Join(sys, "devices/system/cpu", "cpu"+strconv.Itoa(id))
	nodes, err := filepath.Glob(filepath.Join(dir, "node[0-9]*"))
	if err == nil && len(nodes) == 1 {
		cpu.Node, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(nodes[0]), "node"))
	}
	if err != nil {
		return cpu, fmt.Errorf("read the NUMA node of CPU %d: %w", id, err)
	}
	siblings, err := os.ReadFile(filepath.Join(dir, "topology/thread_siblings_list"))
	if os.IsNotExist(err) {
		return cpu, nil // a kernel that hides it
	}
	first := strings.FieldsFunc(string(siblings), func(r rune) bool { return r < '0' || r > '9' })
	if err == nil && len(first) > 0 {
		cpu.Core, err = strconv.Atoi(first[0])
	}
	if err != nil {
		return cpu, fmt.Errorf("read the core of CPU %d: %w", id, err)
	}
	return cpu, nil
}
