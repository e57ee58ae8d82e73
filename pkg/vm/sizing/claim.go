package sizing

import (
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// What the file of a guest's memory has besides the memory, bytes.
const (
	// DumpRoom is for a memory dump, an ELF core: its headers; KubeVirt's.
	DumpRoom = 100 << 20
	// SavedRoom is for the memory in a snapshot: the state of the guest's devices and the memory of its screen.
	SavedRoom = 160 << 20
)

// Written returns the size of the memory in a file of a guest's memory, bytes: the guest's present size, and no less
// than its wanted size, since it may grow before the file is written. It is zero where nothing says how much that is.
func Written(vmi *v1.VirtualMachineInstance) int64 {
	memory, _ := Memory(&vmi.Spec.Domain) // zero when an instance type is to say it
	out := memory.Value()
	if s := vmi.Status.Memory; s != nil {
		for _, quantity := range []*resource.Quantity{s.GuestAtBoot, s.GuestCurrent, s.GuestRequested} {
			if quantity != nil {
				out = max(out, quantity.Value())
			}
		}
	}
	return out
}

// fileSystem is the number of parts of a claim, of which its file system takes one.
const fileSystem = 18

// FileClaim returns the size of a claim whose file system has room for a file of so many bytes: whole MiB.
func FileClaim(bytes int64) *resource.Quantity {
	return resource.NewQuantity((bytes+bytes/(fileSystem-1)+1<<20-1)>>20<<20, resource.BinarySI)
}
