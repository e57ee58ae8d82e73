package domain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// HostCPU is one of the pod's CPUs.
type HostCPU struct {
	// ID is the host's number of the CPU, Node its NUMA node, Core the least ID of its core's threads.
	ID, Node, Core int
}

// Placement assigns the threads of a guest with CPUs of its own to CPUs.
type Placement struct {
	// VCPUs has the host's CPU of each vCPU that is online at boot.
	VCPUs []HostCPU
	// Emulator is the CPU of QEMU's own threads; nil leaves them to all of the pod's.
	Emulator *HostCPU
}

// Place gives each vCPU one of the pod's CPUs: NUMA node by NUMA node, and threads of one core side by side. It returns
// nil for a guest without dedicatedCpuPlacement. vcpus is the number of online vCPUs.
func Place(spec *v1.DomainSpec, vcpus int, cpus []HostCPU) (*Placement, error) {
	if !sizing.Dedicated(spec) {
		return nil, nil
	}
	want := vcpus
	if spec.CPU.IsolateEmulatorThread {
		want++
	}
	if len(cpus) < want {
		return nil, field("spec.domain.cpu.dedicatedCpuPlacement",
			"the pod has %d CPUs of its own and the guest needs %d", len(cpus), want)
	}
	cpus = slices.Clone(cpus)
	slices.SortFunc(cpus, func(a, b HostCPU) int { return cmp.Or(a.Node-b.Node, a.Core-b.Core, a.ID-b.ID) })
	p := &Placement{VCPUs: cpus[:vcpus]}
	if spec.CPU.IsolateEmulatorThread {
		p.Emulator = &cpus[len(cpus)-1]
	}
	return p, nil
}

// pins writes a placement into a domain.
func (p *Placement) pins(d *libvirtxml.Domain) {
	tune := &libvirtxml.DomainCPUTune{}
	for i, cpu := range p.VCPUs {
		tune.VCPUPin = append(tune.VCPUPin,
			libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(i), CPUSet: strconv.Itoa(cpu.ID)})
	}
	if p.Emulator != nil {
		tune.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: strconv.Itoa(p.Emulator.ID)}
	}
	d.CPUTune = tune
}

// mapNUMA gives the guest the NUMA nodes that its CPUs are on, each with its share of the memory. The memory is not
// bound to the nodes, which a container may not do (set_mempolicy): a page comes from the node of the vCPU that touches
// it first.
func (p *Placement) mapNUMA(d *libvirtxml.Domain, spec *v1.DomainSpec) error {
	page := uint64(sizing.PageSize(spec))
	if page == 0 {
		return field("spec.domain.cpu.numa.guestMappingPassthrough", "needs memory.hugepages")
	}
	var nodes []int
	members := map[int][]string{}
	for vcpu, cpu := range p.VCPUs {
		if members[cpu.Node] == nil {
			nodes = append(nodes, cpu.Node)
		}
		members[cpu.Node] = append(members[cpu.Node], strconv.Itoa(vcpu))
	}
	pages := uint64(d.Memory.Value) / page
	if pages < uint64(len(nodes)) {
		return field("spec.domain.memory.guest", "%d pages cannot be spread over the %d NUMA nodes of the pod's CPUs",
			pages, len(nodes))
	}
	numa := &libvirtxml.DomainNuma{}
	backing := &libvirtxml.DomainMemoryHugepages{}
	for i, node := range nodes {
		share := pages / uint64(len(nodes))
		if uint64(i) < pages%uint64(len(nodes)) {
			share++
		}
		id := uint(i)
		numa.Cell = append(numa.Cell, libvirtxml.DomainCell{
			ID: &id, CPUs: strings.Join(members[node], ","),
			Memory: uint(share * page), Unit: "b",
		})
		backing.Hugepages = append(backing.Hugepages,
			libvirtxml.DomainMemoryHugepage{Size: uint(page), Unit: "b", Nodeset: strconv.Itoa(i)})
	}
	d.CPU.Numa = numa
	d.MemoryBacking.MemoryHugePages = backing
	return nil
}

// place gives the domain the CPUs of its pod, if it has any of its own.
func place(d *libvirtxml.Domain, spec *v1.DomainSpec, cpus []HostCPU) error {
	sockets, _ := sizing.Sockets(spec)
	p, err := Place(spec, sockets*sizing.PerSocket(spec), cpus)
	if p == nil || err != nil {
		return err
	}
	p.pins(d)
	if spec.CPU.Realtime != nil {
		// Counters of performance are the host's to interrupt for.
		d.Features.PMU = &libvirtxml.DomainFeatureState{State: "off"}
	}
	if spec.CPU.NUMA != nil && spec.CPU.NUMA.GuestMappingPassthrough != nil {
		return p.mapNUMA(d, spec)
	}
	return nil
}

// idRange returns the first n vCPUs in libvirt's terms.
func idRange(n int) string {
	if n == 1 {
		return "0"
	}
	return fmt.Sprintf("0-%d", n-1)
}
