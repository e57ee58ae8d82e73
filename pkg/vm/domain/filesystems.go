package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/filesystems"
)

// filesystemQueue is the number of requests of a file system that may be under way; KubeVirt's.
const filesystemQueue = 1024

// shares returns the file systems that virtiofsd serves in the pod's other containers. The guest knows each by its
// name.
func shares(spec *v1.DomainSpec) []libvirtxml.DomainFilesystem {
	var out []libvirtxml.DomainFilesystem
	for i := range spec.Devices.Filesystems {
		f := &spec.Devices.Filesystems[i]
		if f.Virtiofs == nil {
			continue
		}
		out = append(out, libvirtxml.DomainFilesystem{
			AccessMode: "passthrough",
			Driver:     &libvirtxml.DomainFilesystemDriver{Type: "virtiofs", Queue: filesystemQueue},
			Source: &libvirtxml.DomainFilesystemSource{
				Mount: &libvirtxml.DomainFilesystemSourceMount{Socket: filesystems.Socket(f.Name)},
			},
			Target: &libvirtxml.DomainFilesystemTarget{Dir: f.Name},
			Alias:  &libvirtxml.DomainAlias{Name: aliasPrefix + "fs-" + f.Name},
		})
	}
	return out
}

// shareMemory lets other processes of the pod map the guest's memory, if there are any that have to. Huge pages are
// files anyway.
func shareMemory(d *libvirtxml.Domain, spec *v1.DomainSpec) {
	if !filesystems.Any(spec) {
		return
	}
	if d.MemoryBacking == nil {
		d.MemoryBacking = &libvirtxml.DomainMemoryBacking{MemorySource: &libvirtxml.DomainMemorySource{Type: "memfd"}}
	}
	d.MemoryBacking.MemoryAccess = &libvirtxml.DomainMemoryAccess{Mode: "shared"}
	if filesystems.Preallocated(spec) {
		d.MemoryBacking.MemoryAllocation = &libvirtxml.DomainMemoryAllocation{Mode: "immediate"}
	}
}
