// Package filesystems says which volumes of a VMI its guest has as file systems instead of disks
// (spec.domain.devices.filesystems), and where virtiofsd serves each of them: in a container of its own of the
// launcher's pod, at a socket in a directory of its own, which the launcher's container sees. virtiofsd reads and
// writes the guest's memory, so that is shared memory. virt-controller plans the containers by it, the launcher the
// domain. It is pure.
package filesystems

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// MaxTag is the longest name of a file system, bytes, in virtio.
const MaxTag = 36

// Of returns the file system that a volume is to the guest; nil for other volumes.
func Of(spec *v1.VirtualMachineInstanceSpec, volume string) *v1.Filesystem {
	list := spec.Domain.Devices.Filesystems
	i := slices.IndexFunc(list, func(f v1.Filesystem) bool { return f.Name == volume && f.Virtiofs != nil })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// Disk reports a volume that a guest has as a disk: a volume for which the spec lists no disk gets one, unless it is a
// file system. A memory dump is neither.
func Disk(spec *v1.VirtualMachineInstanceSpec, volume *v1.Volume) bool {
	return volume.MemoryDump == nil && Of(spec, volume.Name) == nil
}

// Any reports a guest that has a file system.
func Any(domain *v1.DomainSpec) bool {
	return slices.ContainsFunc(domain.Devices.Filesystems, func(f v1.Filesystem) bool { return f.Virtiofs != nil })
}

// Socket returns where virtiofsd serves a file system, in the launcher's container and in its own.
func Socket(name string) string { return path.Join(names.FilesystemsDir, name, "virtiofsd.sock") }

// Container returns the name of the container in which virtiofsd serves a file system; KubeVirt's.
func Container(name string) string { return "virtiofs-" + name }

// Configuration reports whether a volume holds data that Kubernetes has anyway, which the guest can only read.
func Configuration(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.ServiceAccount != nil || v.DownwardAPI != nil
}

// Preallocated reports a guest that gets all of its memory when it is started: one that shares file systems from a pod
// whose memory is limited. A page of the guest counts as that container's which touches it first, and that may be
// virtiofsd's, whose limit is far lower than the guest's memory.
func Preallocated(domain *v1.DomainSpec) bool {
	_, limited := domain.Resources.Limits[corev1.ResourceMemory]
	own := domain.CPU != nil && domain.CPU.DedicatedCPUPlacement
	huge := domain.Memory != nil && domain.Memory.Hugepages != nil
	return Any(domain) && (limited || own) && !huge
}
