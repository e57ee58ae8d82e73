package domain

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

// maxQueues is the most queues that a virtio device gets, whatever the guest's vCPUs; KubeVirt's.
const maxQueues = 256

// ioThreads assigns virtio disks to threads of QEMU, besides its main loop. Threads are numbered from 1 as libvirt
// does: first those that disks share, then those that belong to one disk.
type ioThreads struct {
	count uint
	// of has each disk's threads by the disk's name; a disk of a pool has the whole pool.
	of map[string][]uint
	// shared are the threads for the rest: the controller of scsi disks, and disks plugged in later.
	shared []uint
}

// planThreads shares out I/O threads by KubeVirt's rules: none unless there is a policy or a disk asks for its own;
// with auto two for each CPU that the pod asks for at most; with supplementalPool as many as said, each of which serves
// every disk.
func planThreads(spec *v1.VirtualMachineInstanceSpec) ioThreads {
	policy := spec.Domain.IOThreadsPolicy
	var own, sharing []string
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		switch {
		case Bus(d) != v1.DiskBusVirtio: // its controller's business
		case enabled(d.DedicatedIOThread, false):
			own = append(own, d.Name)
		default:
			sharing = append(sharing, d.Name)
		}
	}
	if policy == nil && len(own) == 0 {
		return ioThreads{}
	}
	out := ioThreads{of: map[string][]uint{}}
	limit := 1
	if policy != nil {
		switch *policy {
		case v1.IOThreadsPolicySupplementalPool:
			if threads := spec.Domain.IOThreads; threads != nil && threads.SupplementalPoolThreadCount != nil {
				out.count = uint(*threads.SupplementalPoolThreadCount)
			}
			for id := uint(1); id <= out.count; id++ {
				out.shared = append(out.shared, id)
			}
			for _, name := range append(own, sharing...) {
				out.of[name] = out.shared
			}
			return out
		case v1.IOThreadsPolicyAuto:
			limit = 2 * requestedCPUs(&spec.Domain)
		}
	}
	common := max(1, min(len(sharing), limit-len(own)))
	for i, name := range sharing {
		out.of[name] = []uint{uint(i%common) + 1}
	}
	for i, name := range own {
		out.of[name] = []uint{uint(common + i + 1)}
	}
	out.count, out.shared = uint(common+len(own)), []uint{1}
	return out
}

// requestedCPUs returns how many CPUs the pod asks for, rounded up; 1 when it asks for none.
func requestedCPUs(spec *v1.DomainSpec) int {
	for _, list := range []corev1.ResourceList{spec.Resources.Requests, spec.Resources.Limits} {
		if q, ok := list[corev1.ResourceCPU]; ok {
			return int(max(1, min(q.Value(), math.MaxInt16)))
		}
	}
	return 1
}

// tuning holds the settings that virtio disks and their controllers get from elsewhere in the VMI than their own entry.
type tuning struct {
	threads      ioThreads
	queues       uint // 0 leaves them to QEMU
	transitional bool
	encrypted    bool // the guest's memory
}

// tune reads the VMI as it was when the guest was started, so that a disk plugged in later finds the threads that there
// are.
func tune(spec *v1.VirtualMachineInstanceSpec) tuning {
	t := tuning{
		threads:      planThreads(hotplug.Without(spec)),
		transitional: enabled(spec.Domain.Devices.UseVirtioTransitional, false),
		encrypted:    passthrough.SEV(&spec.Domain),
	}
	if enabled(spec.Domain.Devices.BlockMultiQueue, false) {
		vcpus, _ := processors(&spec.Domain)
		started := vcpus.Value
		if vcpus.Current > 0 {
			started = vcpus.Current // the rest may be plugged in
		}
		t.queues = min(started, maxQueues)
	}
	return t
}

func (t tuning) disk(x *libvirtxml.DomainDisk, name string) {
	if x.Target.Bus != string(v1.DiskBusVirtio) {
		return
	}
	if t.transitional {
		x.Model = transitionalModel
	}
	if t.encrypted {
		x.Driver.IOMMU = "on"
	}
	if t.queues > 0 {
		x.Driver.Queues = &t.queues
	}
	ids, ok := t.threads.of[name]
	if !ok {
		ids = t.threads.shared
	}
	switch len(ids) {
	case 0:
	case 1:
		x.Driver.IOThread = &ids[0]
	default:
		x.Driver.IOThreads = &libvirtxml.DomainDiskIOThreads{}
		for _, id := range ids {
			x.Driver.IOThreads.IOThread = append(x.Driver.IOThreads.IOThread, libvirtxml.DomainDiskIOThread{ID: id})
		}
	}
}

// controller sets up the controller of scsi disks.
func (t tuning) controller(x *libvirtxml.DomainController) {
	if t.transitional {
		x.Model = transitionalModel
	}
	if t.queues == 0 && len(t.threads.shared) == 0 && !t.encrypted {
		return
	}
	x.Driver = &libvirtxml.DomainControllerDriver{}
	if t.encrypted {
		x.Driver.IOMMU = "on"
	}
	if t.queues > 0 {
		x.Driver.Queues = &t.queues
	}
	if len(t.threads.shared) > 0 {
		x.Driver.IOThread = t.threads.shared[0]
	}
}
