package domain

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// sizingCases are cases of build_test.go.
var sizingCases = map[string]func(*v1.VirtualMachineInstance, *Facts){
	"max-sockets": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 1, Cores: 2, Threads: 1, MaxSockets: 4}
	},
	"max-guest": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, MaxSockets: 4}
		vmi.Spec.Domain.Memory.MaxGuest = new(resource.MustParse("512Mi"))
	},
	"hugepages": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
	},
	"dedicated-cpus": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, Cores: 1, Threads: 1, DedicatedCPUPlacement: true}
		f.CPUs = []HostCPU{{ID: 9, Core: 1}, {ID: 1, Core: 1}}
	},
	"dedicated-cpus-isolated": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{
			Sockets: 1, Cores: 2, Threads: 1, DedicatedCPUPlacement: true, IsolateEmulatorThread: true,
		}
		f.CPUs = []HostCPU{{ID: 4, Core: 4}, {ID: 5, Core: 5}, {ID: 6, Core: 6}}
	},
	"numa-passthrough": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{
			Sockets: 1, Cores: 3, Threads: 1, DedicatedCPUPlacement: true,
			NUMA: &v1.NUMA{GuestMappingPassthrough: &v1.NUMAGuestMappingPassthrough{}},
		}
		vmi.Spec.Domain.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
		f.CPUs = []HostCPU{{ID: 8, Core: 8, Node: 1}, {ID: 3, Core: 3}, {ID: 2, Core: 2}}
	},
	"realtime": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{
			Sockets: 1, Cores: 2, Threads: 1, DedicatedCPUPlacement: true, Realtime: &v1.Realtime{Mask: "0"},
			NUMA: &v1.NUMA{GuestMappingPassthrough: &v1.NUMAGuestMappingPassthrough{}},
		}
		vmi.Spec.Domain.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
		f.CPUs = []HostCPU{{ID: 3, Core: 3}, {ID: 2, Core: 2}}
	},
}

func TestPlacementNeedsCPUs(t *testing.T) {
	vmi, facts := baseline()
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, DedicatedCPUPlacement: true, IsolateEmulatorThread: true}
	facts.CPUs = []HostCPU{{ID: 1}, {ID: 2}}
	if _, err := Build(vmi, *facts); err == nil ||
		!strings.Contains(err.Error(), "has 2 CPUs of its own and the guest needs 3") {
		t.Errorf("two CPUs for three threads: %v", err)
	}
}

func TestGrowableMemory(t *testing.T) {
	vmi, _ := baseline()
	if dev := GrowableMemory(&vmi.Spec.Domain, 128<<20, 0); dev != nil {
		t.Errorf("no room, and yet %+v", dev)
	}
	vmi.Spec.Domain.Memory.MaxGuest = new(resource.MustParse("512Mi"))
	text, err := GrowableMemory(&vmi.Spec.Domain, 128<<20, 64<<20).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const want = `<memory model="virtio-mem">
  <target>
    <size unit="b">402653184</size>
    <node>0</node>
    <block unit="b">2097152</block>
    <requested unit="b">67108864</requested>
  </target>
  <alias name="ua-virtio-mem"></alias>
</memory>`
	if text != want {
		t.Errorf("got %s", text)
	}
}
