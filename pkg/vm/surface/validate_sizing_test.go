package surface

import (
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

func TestValidateSizing(t *testing.T) {
	of := func(text string) string {
		return "domain: {devices: {disks: [{name: root, disk: {bus: virtio}}]}, " + text + "}"
	}
	const gib = "memory: {guest: 1Gi}, "
	const mapped = "memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}, cpu: {dedicatedCpuPlacement: true, " +
		"numa: {guestMappingPassthrough: {}}, "
	for name, tc := range map[string]struct{ spec, want string }{
		"room for sockets": {of(gib + "cpu: {sockets: 2, maxSockets: 4}"), ``},
		"sockets beyond": {
			of(gib + "cpu: {sockets: 4, maxSockets: 2}"),
			`spec.domain.cpu.sockets: 4 is more than maxSockets, 2; raise maxSockets or lower it`,
		},
		"too many sockets": {
			of(gib + "cpu: {sockets: 2, cores: 8, maxSockets: 513}"),
			`spec.domain.cpu.maxSockets: 513 sockets × 8 cores × 1 threads would be too many vCPUs; the most is 4096`,
		},
		"room for memory": {of("memory: {guest: 1Gi, maxGuest: 4Gi}"), ``},
		"room for none":   {of("memory: {guest: 1Gi, maxGuest: 1Gi}"), ``},
		"memory beyond": {
			of("memory: {guest: 2Gi, maxGuest: 1Gi}"),
			`spec.domain.memory.guest: 2Gi is more than maxGuest, 1Gi; raise maxGuest or lower it`,
		},
		"odd room": {
			of("memory: {guest: 1Gi, maxGuest: 1025M}"), `spec.domain.memory.guest: 1Gi is more than maxGuest`,
		},
		"odd room above": {
			of("memory: {guest: 1Gi, maxGuest: 2000M}"), `spec.domain.memory.maxGuest: 2G is not a multiple of 2Mi`,
		},
		"odd memory with room": {
			of("memory: {guest: 1G, maxGuest: 2Gi}"),
			`spec.domain.memory.maxGuest: needs guest memory that is a multiple of 2Mi; change that, or leave maxGuest out`,
		},
		"vast room": {
			of("memory: {guest: 1Gi, maxGuest: 2Ei}"), `spec.domain.memory.maxGuest: 2Ei is more than any machine has`,
		},
		"huge pages":             {of("memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}"), ``},
		"guest of one huge page": {of("memory: {hugepages: {pageSize: 1Gi}}"), ``},
		"huge pages of a size":   {of("memory: {guest: 3Gi, hugepages: {pageSize: 3Mi}}"), ``},
		"huge pages of no size": {
			of("memory: {guest: 1Gi, hugepages: {}}"),
			`spec.domain.memory.hugepages.pageSize: is not set; use a size of the nodes' huge pages, 2Mi or 1Gi`,
		},
		"huge pages of no kind": {
			of("memory: {guest: 1Gi, hugepages: {pageSize: '3'}}"),
			`spec.domain.memory.hugepages.pageSize: "3" is no size of pages; use one of the nodes' huge pages, 2Mi or 1Gi`,
		},
		"huge pages of a word": {
			of("memory: {guest: 1Gi, hugepages: {pageSize: large}}"),
			`spec.domain.memory.hugepages.pageSize: "large" is no size of pages`,
		},
		"negative huge pages": {
			of("memory: {guest: 1Gi, hugepages: {pageSize: -2Mi}}"),
			`spec.domain.memory.hugepages.pageSize: "-2Mi" is no size of pages`,
		},
		"room on odd huge pages": {
			of("memory: {guest: 3Gi, maxGuest: 6Gi, hugepages: {pageSize: 3Mi}}"),
			`spec.domain.memory.maxGuest: needs huge pages of 2Mi or a multiple of it`,
		},
		"as much as no node has": {of("memory: {guest: 1Ei}, cpu: {sockets: 65536}"), ``},
		"more than that": {
			of("memory: {guest: 1025Pi}"),
			`spec.domain.memory.guest: 1025Pi is more than any machine has; the most is 1Ei`,
		},
		"memory between huge pages": {
			of("memory: {guest: 1025Mi, hugepages: {pageSize: 2Mi}}"),
			`spec.domain.memory.guest: 1025Mi is not a multiple of the page size, 2Mi`,
		},
		"odd room on huge pages": {
			of("memory: {guest: 1Gi, maxGuest: 2050Mi, hugepages: {pageSize: 1Gi}}"),
			`spec.domain.memory.maxGuest: 2050Mi is not a multiple of 1024Mi`,
		},
		"added overhead": {of("memory: {guest: 1Gi, reservedOverhead: {addedOverhead: 64Mi}}"), ``},
		"negative added overhead": {
			of("memory: {guest: 1Gi, reservedOverhead: {addedOverhead: -1}}"),
			`spec.domain.memory.reservedOverhead.addedOverhead: -1 must not be negative`,
		},
		"locked overhead": {of("memory: {guest: 1Gi, reservedOverhead: {memLock: Required}}"), ``},
		"overhead locked somehow": {
			of("memory: {guest: 1Gi, reservedOverhead: {memLock: Maybe}}"),
			`spec.domain.memory.reservedOverhead.memLock: "Maybe" is not supported; use NotRequired or Required`,
		},

		"dedicated": {of(gib + "cpu: {sockets: 2, dedicatedCpuPlacement: true, isolateEmulatorThread: true}"), ``},
		"dedicated with equal resources": {
			of(gib +
				"cpu: {sockets: 2, dedicatedCpuPlacement: true}, resources: {requests: {cpu: 2, memory: 1Gi}, " +
				"limits: {cpu: 2, memory: 1Gi}}"),
			``,
		},
		"dedicated with parts": {
			of(gib + "cpu: {sockets: 2, dedicatedCpuPlacement: true}, resources: {limits: {cpu: 1500m}}"),
			`spec.domain.resources.limits.cpu: 1500m is not the number of vCPUs, 2, which dedicatedCpuPlacement gives each a CPU; leave it out`,
		},
		"dedicated with more": {
			of(gib +
				"cpu: {sockets: 2, dedicatedCpuPlacement: true}, " +
				"resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}"),
			`spec.domain.resources.requests.memory: 1Gi is not the limit of 2Gi, which dedicatedCpuPlacement needs; leave one of them out`,
		},
		"isolated, not dedicated": {
			of(gib + "cpu: {isolateEmulatorThread: true}"),
			`spec.domain.cpu.isolateEmulatorThread: needs dedicatedCpuPlacement: true`,
		},
		"mapped NUMA": {
			of("memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}, cpu: {dedicatedCpuPlacement: true, " +
				"numa: {guestMappingPassthrough: {}}}"),
			``,
		},
		"mapped NUMA on small pages": {
			of(gib + "cpu: {dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}"),
			`spec.domain.cpu.numa.guestMappingPassthrough: needs memory.hugepages`,
		},
		"mapped NUMA, not dedicated": {
			of("memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}, cpu: {numa: {guestMappingPassthrough: {}}}"),
			`spec.domain.cpu.numa: needs dedicatedCpuPlacement: true`,
		},
		"realtime":       {of(mapped + "realtime: {}}"), ``},
		"realtime vCPUs": {of(mapped + `cores: 4, realtime: {mask: "0-3,^1"}}`), ``},
		"realtime vCPU beyond": {
			of(mapped + `cores: 2, realtime: {mask: "0-2"}}`),
			`spec.domain.cpu.realtime.mask: there is no vCPU 2: the guest has 2, from 0; use numbers`,
		},
		"realtime vCPU of another kind": {
			of(mapped + `realtime: {mask: all}}`),
			`spec.domain.cpu.realtime.mask: "all" is not the number of a vCPU; use numbers`,
		},
		"realtime, not dedicated": {
			of(gib + "cpu: {realtime: {}}"), `spec.domain.cpu.realtime: needs dedicatedCpuPlacement: true`,
		},
		"realtime, not mapped": {
			of(gib + "cpu: {dedicatedCpuPlacement: true, realtime: {}}"),
			`spec.domain.cpu.realtime: needs numa.guestMappingPassthrough: {}, and with it memory.hugepages`,
		},
		"mapped NUMA with room": {
			of("memory: {guest: 1Gi, maxGuest: 2Gi, hugepages: {pageSize: 2Mi}}, " +
				"cpu: {dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}"),
			`spec.domain.memory.maxGuest: cannot be combined with cpu.numa.guestMappingPassthrough`,
		},
		"mapped NUMA with sockets": {
			of("memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}, cpu: {maxSockets: 2, " +
				"dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}"),
			`spec.domain.cpu.maxSockets: cannot be more than sockets with numa.guestMappingPassthrough`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, tc.spec)
			DefaultVirtualMachineInstance(vmi, testDefaults)
			got := Message(ValidateVirtualMachineInstance(vmi, Actor{}))
			if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Whatever an installation fills in passes its own validation.
func TestDefaultBoundsAreValid(t *testing.T) {
	for _, bounds := range []sizing.Bounds{{Ratio: 4}, {Ratio: 1 << 31, MaxSockets: 3, MaxGuest: 3 << 30}, {}} {
		for _, text := range []string{
			"{memory: {guest: 1Gi}}", "{memory: {guest: 100M}}", "{memory: {guest: 1500M}}", "{memory: {guest: 32Ti}}",
			"{memory: {guest: 2Gi, hugepages: {pageSize: 1Gi}}}",
			"{memory: {guest: 4Gi}, cpu: {sockets: 100, cores: 2}}",
			"{memory: {guest: 4Gi, hugepages: {pageSize: 2Mi}}, cpu: {sockets: 2, dedicatedCpuPlacement: true, " +
				"numa: {guestMappingPassthrough: {}}}}",
		} {
			vmi := instance(t, "domain: "+text[:1]+"devices: {disks: [{name: root, disk: {bus: virtio}}]}, "+text[1:])
			defaults := testDefaults
			defaults.LiveUpdate = &bounds
			DefaultVirtualMachineInstance(vmi, defaults)
			if errs := ValidateVirtualMachineInstance(vmi, Actor{}); len(errs) > 0 {
				t.Errorf("%+v of %s: %s", bounds, text, Message(errs))
			}
		}
	}
}

func TestDefaultBounds(t *testing.T) {
	vmi := instance(t,
		"domain: {devices: {disks: [{name: root, disk: {bus: virtio}}]}, memory: {guest: 1Gi}, cpu: {maxSockets: 2}}")
	defaults := testDefaults
	defaults.LiveUpdate = &sizing.Bounds{Ratio: 4}
	DefaultVirtualMachineInstance(vmi, defaults)
	if d := vmi.Spec.Domain; d.CPU.MaxSockets != 2 || d.Memory.MaxGuest.String() != "4Gi" {
		t.Errorf("maxSockets %d, maxGuest %s", d.CPU.MaxSockets, d.Memory.MaxGuest)
	}
	vmi = instance(t, "domain: {devices: {disks: [{name: root, disk: {bus: virtio}}]}, memory: {guest: 1Gi}}")
	DefaultVirtualMachineInstance(vmi, testDefaults)
	if d := vmi.Spec.Domain; d.CPU.MaxSockets != 0 || d.Memory.MaxGuest != nil {
		t.Errorf("staged: %+v", d)
	}
}
